package template

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"pinfold/sandbox"
)

// entry is one of a tar: "dir/", "file", "link -> target", "hard => target".
type entry struct {
	name, content string
	mode          int64
	header        *tar.Header // instead
}

var when = time.Unix(1_700_000_000, 0)

// tarOf makes a tar.
func tarOf(t testing.TB, list ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		h := e.header
		if h == nil {
			h = headerOf(e)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func headerOf(e entry) *tar.Header {
	h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg, ModTime: when}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	if strings.HasSuffix(e.name, "/") {
		h.Typeflag = tar.TypeDir
	}
	if name, to, ok := strings.Cut(e.name, " -> "); ok {
		h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name, to
	}
	if name, to, ok := strings.Cut(e.name, " => "); ok {
		h.Typeflag, h.Name, h.Linkname = tar.TypeLink, name, to
	}
	return h
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

// layout is an OCI layout that is being made: the parts by their names.
type layout map[string][]byte

func (l layout) blob(b []byte, mediaType string) Descriptor {
	d := Descriptor{MediaType: mediaType, Digest: string(hashOf(b)), Size: int64(len(b))}
	l[blobName(d.Digest)] = b
	return d
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// configOf is the configuration of an image with these layers.
func configOf(t testing.TB, tars ...[]byte) []byte {
	t.Helper()
	c := ociConfig{Architecture: runtime.GOARCH, OS: "linux"}
	c.Config.Env, c.Config.User, c.Config.WorkingDir = []string{"PATH=/opt/bin:/bin", "COLOR=red"}, "app", "/srv"
	for _, b := range tars {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, string(hashOf(b)))
	}
	return asJSON(t, c)
}

// ociLayout makes a layout with one image; pack compresses its layers.
func ociLayout(t testing.TB, pack func(testing.TB, []byte) []byte, tars ...[]byte) layout {
	t.Helper()
	l := layout{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	config := l.blob(configOf(t, tars...), "application/vnd.oci.image.config.v1+json")
	m := document{SchemaVersion: 2, Config: &config}
	for _, b := range tars {
		m.Layers = append(m.Layers, l.blob(pack(t, b), "application/vnd.oci.image.layer.v1.tar+gzip"))
	}
	d := l.blob(asJSON(t, m), "application/vnd.oci.image.manifest.v1+json")
	d.Platform = &platform{Architecture: runtime.GOARCH, OS: "linux"}
	d.Annotations = map[string]string{refName: "latest"}
	l["index.json"] = asJSON(t, document{SchemaVersion: 2, Manifests: []Descriptor{
		{Digest: string(hashOf(nil)), Platform: &platform{Architecture: "unknown", OS: "unknown"}}, d,
	}})
	return l
}

func (l layout) tar(t testing.TB) []byte {
	t.Helper()
	var list []entry
	for _, name := range slices.Sorted(keys(l)) {
		list = append(list, entry{name: name, content: string(l[name])})
	}
	return tarOf(t, list...)
}

func keys(l layout) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range l {
			if !yield(k) {
				return
			}
		}
	}
}

func (l layout) dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range l {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// open opens a store for a test.
func open(t testing.TB, l Limits) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "templates"), l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// add imports an archive.
func add(t testing.TB, s *Store, name string, archive []byte) Template {
	t.Helper()
	got, err := s.Import(t.Context(), bytes.NewReader(archive), Import{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// codeOf is the code of an error.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return sandbox.AsError(err).Code
}

// show lists what is in a directory, a line for each.
func show(t testing.TB, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		switch {
		case rel == ".":
			rel = "/"
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			rel += " -> " + to
		case isWhiteout(info):
			rel += " gone"
		case info.IsDir():
			rel += "/"
		default:
			content, err := os.ReadFile(p) //nolint:gosec // of the test
			if err != nil {
				return err
			}
			rel += " = " + string(content)
		}
		if info.IsDir() {
			f, err := os.Open(p) //nolint:gosec // of the test
			if err != nil {
				return err
			}
			defer f.Close()
			if opaque, err := isOpaque(f); err != nil || opaque {
				rel += " opaque"
			}
		}
		if info.Mode().IsRegular() || info.IsDir() && rel != "/" {
			rel += fmt.Sprintf(" %o", info.Mode().Perm())
		}
		if rel != "/" {
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// empty says what a store holds that it should not, when nothing was added.
func empty(t testing.TB, s *Store) {
	t.Helper()
	for _, f := range folders {
		list, err := os.ReadDir(s.path(f))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			t.Errorf("%s/%s was kept", f, e.Name())
		}
	}
}

// unpacked unpacks a tar into a directory.
func unpacked(ctx context.Context, t testing.TB, archive []byte) (dir string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "root")
	if err := makeRoot(dir); err != nil {
		t.Fatal(err)
	}
	return dir, unpack(ctx, bytes.NewReader(archive), dir, &budget{bytes: 1 << 30, entries: 1 << 20})
}

// blobOf is a layer as a sender would have it.
func blobOf(b []byte) Blob {
	return Blob{Digest: string(hashOf(b)), Size: int64(len(b)), Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}
