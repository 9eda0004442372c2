//go:build linux

package template

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pinfold/sandbox"
)

func plain(_ testing.TB, b []byte) []byte { return b }

var (
	bottom = []entry{{name: "bin/"}, {name: "bin/sh", content: "shell", mode: 0o755}, {name: "etc/old", content: "old"}, {name: "opt/a", content: "a"}}
	top    = []entry{{name: "etc/.wh.old"}, {name: "opt/.wh..wh..opq"}, {name: "opt/b", content: "b"}}
)

// The same image has the same hash whichever way it comes, and is kept once.
func TestImportEveryForm(t *testing.T) {
	low, high := tarOf(t, bottom...), tarOf(t, top...)
	s := open(t, Limits{})
	docker := func(prefix string) []byte {
		config := configOf(t, low, high)
		return tarOf(t,
			entry{name: "1/layer.tar", content: string(low)}, entry{name: "2/real.tar", content: string(high)}, entry{name: "2/layer.tar -> real.tar"},
			entry{name: "c.json", content: string(config)},
			entry{name: "manifest.json", content: string(asJSON(t, []map[string]any{
				{"Config": "c.json", "RepoTags": []string{prefix + ":1"}, "Layers": []string{"1/layer.tar", "2/layer.tar"}},
			}))})
	}
	pipe := func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) }
	file := func(b []byte) io.Reader {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return f
	}
	want := add(t, s, "first", ociLayout(t, gzipped, low, high).tar(t)).Image
	for name, r := range map[string]io.Reader{
		"an OCI layout, gzip":                pipe(ociLayout(t, gzipped, low, high).tar(t)),
		"an OCI layout, zstd":                file(ociLayout(t, zstandard, low, high).tar(t)),
		"an OCI layout, plain":               file(ociLayout(t, plain, low, high).tar(t)),
		"an OCI layout that is compressed":   file(gzipped(t, ociLayout(t, plain, low, high).tar(t))),
		"a compressed OCI layout in a pipe":  pipe(zstandard(t, ociLayout(t, gzipped, low, high).tar(t))),
		"what docker save wrote":             file(docker("app")),
		"what docker save wrote, compressed": pipe(gzipped(t, docker("app"))),
	} {
		got, err := s.Import(t.Context(), r, Import{Name: "app"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got.Image); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if empty := tmpOf(t, s); len(empty) > 0 {
			t.Errorf("%s left %q", name, empty)
		}
	}
	got, err := s.ImportDir(t.Context(), ociLayout(t, gzipped, low, high).dir(t), Import{Name: "app"})
	if err != nil || got.Image.ID != want.ID {
		t.Errorf("a directory: %v, %v", got.Image.ID, err)
	}
	if layers, err := os.ReadDir(s.path("layers")); err != nil || len(layers) != 2 {
		t.Errorf("%d layers are kept, %v", len(layers), err)
	}
	if diff := cmp.Diff(Config{Env: []string{"PATH=/opt/bin:/bin", "COLOR=red"}, User: "app", WorkingDir: "/srv"}, want.Config); diff != "" {
		t.Error(diff)
	}
	if want.Architecture != runtime.GOARCH {
		t.Errorf("architecture %q", want.Architecture)
	}
}

func tmpOf(t testing.TB, s *Store) (names []string) {
	t.Helper()
	list, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A root file system is an image of one layer, and is unpacked as it comes.
func TestImportRoot(t *testing.T) {
	archive := tarOf(t, bottom...)
	s := open(t, Limits{})
	want := add(t, s, "auto", archive)
	for name, b := range map[string][]byte{"plain": archive, "gzip": gzipped(t, archive), "zstd": zstandard(t, archive)} {
		got, err := s.Import(t.Context(), io.MultiReader(bytes.NewReader(b)), Import{Name: name, Format: Root})
		if err != nil || got.Image.ID != want.Image.ID {
			t.Errorf("%s: %v, %v", name, got.Image.ID, err)
		}
	}
	u, err := s.Use("auto")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if diff := cmp.Diff([]string{"bin/ 755", "bin/sh = shell 755", "etc/ 755", "etc/old = old 644", "opt/ 755", "opt/a = a 644"}, show(t, u.Layers[0])); diff != "" {
		t.Error(diff)
	}
	_, err = s.Import(t.Context(), bytes.NewReader(archive), Import{Name: "images", Format: Images})
	if codeOf(err) != sandbox.CodeUnsafeArchive {
		t.Errorf("a root file system where images are wanted: %v", err)
	}
}

// Whatever is wrong with an image is said, and nothing of it is kept.
func TestImportRefuses(t *testing.T) {
	low := tarOf(t, bottom...)
	change := func(name string, f func(layout)) layout {
		l := ociLayout(t, gzipped, low)
		f(l)
		_ = name
		return l
	}
	biggest := func(l layout) (name string) {
		for k, v := range l {
			if strings.HasPrefix(k, "blobs/") && len(v) > 2 && v[0] == 0x1f && v[1] == 0x8b {
				name = k
			}
		}
		return name
	}
	withConfig := func(edit func(*ociConfig)) layout {
		l := layout{"oci-layout": []byte("{}")}
		c := ociConfig{Architecture: runtime.GOARCH, OS: "linux"}
		c.RootFS.DiffIDs = []string{string(hashOf(low))}
		edit(&c)
		config := l.blob(asJSON(t, c), "")
		m := document{Config: &config, Layers: []Descriptor{l.blob(low, "")}}
		l["index.json"] = asJSON(t, document{Manifests: []Descriptor{l.blob(asJSON(t, m), "")}})
		return l
	}
	for name, c := range map[string]struct {
		l    layout
		code string
		says string
	}{
		"a layer that is another": {change("", func(l layout) { l[biggest(l)] = gzipped(t, tarOf(t, top...)) }), sandbox.CodeUnsafeArchive, "come whole"},
		"a layer of the same length that is another": {change("", func(l layout) {
			b := bytes.Clone(l[biggest(l)])
			b[9] ^= 1 // the operating system, which nothing depends on
			l[biggest(l)] = b
		}), sandbox.CodeUnsafeArchive, "not the one that was named"},
		"a layer that is cut":          {change("", func(l layout) { l[biggest(l)] = l[biggest(l)][:40] }), sandbox.CodeUnsafeArchive, "ends too early"},
		"a layer that is longer":       {change("", func(l layout) { l[biggest(l)] = append(bytes.Clone(l[biggest(l)]), 0, 0) }), sandbox.CodeUnsafeArchive, "come whole"},
		"a layer that is missing":      {change("", func(l layout) { delete(l, biggest(l)) }), sandbox.CodeUnsafeArchive, "lacks its part"},
		"a layer that is no archive":   {withConfig(func(*ociConfig) {}).replace(t, low, []byte(strings.Repeat("no tar", 200))), sandbox.CodeUnsafeArchive, ""},
		"a configuration of another":   {withConfig(func(c *ociConfig) { c.RootFS.DiffIDs = []string{string(hashOf(nil))} }), sandbox.CodeUnsafeArchive, "configuration names"},
		"a configuration of fewer":     {withConfig(func(c *ociConfig) { c.RootFS.DiffIDs = nil }), sandbox.CodeUnsafeArchive, "its configuration names 0"},
		"another digest's algorithm":   {withConfig(func(c *ociConfig) { c.RootFS.DiffIDs = []string{"md5:00"} }), sandbox.CodeUnsafeArchive, "no SHA-256"},
		"another system":               {withConfig(func(c *ociConfig) { c.OS = "windows" }), sandbox.CodeUnsafeArchive, "not for linux"},
		"another processor":            {withConfig(func(c *ociConfig) { c.Architecture = "s390x" }), sandbox.CodeUnsafeArchive, "is for s390x"},
		"a variable without a name":    {withConfig(func(c *ociConfig) { c.Config.Env = []string{"=x"} }), sandbox.CodeUnsafeArchive, "environment variable"},
		"a relative working directory": {withConfig(func(c *ociConfig) { c.Config.WorkingDir = "../x" }), sandbox.CodeUnsafeArchive, "no absolute path"},
		"too many variables":           {withConfig(func(c *ociConfig) { c.Config.Env = []string{"A=" + strings.Repeat("x", maxEnvBytes)} }), sandbox.CodeTooLarge, "more environment"},
		"an index that is no JSON":     {change("", func(l layout) { l["index.json"] = []byte("{") }), sandbox.CodeUnsafeArchive, "cannot be read"},
		"an index of nothing":          {change("", func(l layout) { l["index.json"] = []byte("{}") }), sandbox.CodeUnsafeArchive, "neither layers nor"},
		"an index that is too long":    {change("", func(l layout) { l["index.json"] = bytes.Repeat([]byte(" "), MaxDocument+1) }), sandbox.CodeTooLarge, "index.json"},
		"an index of itself":           {circle(t), sandbox.CodeUnsafeArchive, ""},
		"an index with a path": {change("", func(l layout) {
			l["index.json"] = asJSON(t, document{Manifests: []Descriptor{{Digest: "sha256:../../../../etc/passwd"}}})
		}), sandbox.CodeUnsafeArchive, "no SHA-256"},
		"an index for others": {change("", func(l layout) {
			l["index.json"] = asJSON(t, document{Manifests: []Descriptor{{Digest: string(hashOf(nil)), Platform: &platform{"arm", "linux"}}}})
		}), sandbox.CodeUnsafeArchive, "linux/arm"},
		"a hostile entry": {ociLayout(t, gzipped, tarOf(t, entry{name: "../x"})), sandbox.CodeUnsafeArchive, "goes up"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Limits{})
			_, err := s.Import(t.Context(), bytes.NewReader(c.l.tar(t)), Import{Name: "app"})
			if codeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %v; want %s, …%s…", codeOf(err), err, c.code, c.says)
			}
			_, err = s.ImportDir(t.Context(), c.l.dir(t), Import{Name: "app"})
			if codeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("in a directory: %s, %v; want %s, …%s…", codeOf(err), err, c.code, c.says)
			}
			empty(t, s)
		})
	}
}

// replace puts another blob in the place of one, under the name of the first.
func (l layout) replace(t testing.TB, old, blob []byte) layout {
	t.Helper()
	l[blobName(string(hashOf(old)))] = blob
	return l
}

// circle is an index that leads to another, and so on.
func circle(t testing.TB) layout {
	t.Helper()
	l := layout{"oci-layout": []byte("{}")}
	d := Descriptor{Digest: string(hashOf(nil))}
	for range 8 {
		d = l.blob(asJSON(t, document{Manifests: []Descriptor{d}}), "")
	}
	l["index.json"] = asJSON(t, document{Manifests: []Descriptor{d}})
	return l
}

// The bounds hold before what they bound is on the disk.
func TestImportBounds(t *testing.T) {
	zeros := func(n int) []byte {
		return gzipped(t, tarOf(t, entry{name: "zeros", content: strings.Repeat("\x00", n)}))
	}
	many := make([]entry, 50)
	for i := range many {
		many[i] = entry{name: strings.Repeat("d/", i) + "f"}
	}
	for name, c := range map[string]struct {
		limits  Limits
		archive []byte
		says    string
	}{
		"bytes":                  {Limits{Bytes: 1 << 20}, zeros(1<<20 + 1), "more bytes"},
		"entries":                {Limits{Entries: 49}, tarOf(t, many...), "too many entries"},
		"directories in between": {Limits{Entries: 10}, tarOf(t, entry{name: strings.Repeat("d/", 20) + "f"}), "too many entries"},
		"ratio":                  {Limits{Ratio: 2}, zeros(ratioFree + 1), "2 times its size"},
		"behind the archive":     {Limits{Bytes: 1 << 20, Entries: 10}, gzipped(t, append(tarOf(t), make([]byte, 64<<20)...)), "more bytes"},
		"layers":                 {Limits{Layers: 1}, ociLayout(t, gzipped, tarOf(t, bottom...), tarOf(t, top...)).tar(t), "2 layers"},
		"bytes of all layers":    {Limits{Bytes: 5}, ociLayout(t, gzipped, tarOf(t, entry{name: "a", content: "123"}), tarOf(t, entry{name: "b", content: "123"})).tar(t), "more bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []Format{Auto, Root} {
				if f == Root && strings.Contains(name, "layers") {
					continue
				}
				s := open(t, c.limits)
				_, err := s.Import(t.Context(), bytes.NewReader(c.archive), Import{Name: "app", Format: f})
				if codeOf(err) != sandbox.CodeTooLarge || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s, %v; want …%s…", codeOf(err), err, c.says)
				}
				if list := tmpOf(t, s); len(list) > 0 {
					t.Errorf("%q is left", list)
				}
				if _, err := s.Get("app"); codeOf(err) != sandbox.CodeTemplateUnknown {
					t.Errorf("it is there: %v", err)
				}
			}
		})
	}
	// A layer that says itself that it is too large is not asked for.
	large := Blob{Size: 1 << 40, Open: func(context.Context) (io.ReadCloser, error) {
		t.Error("it was opened")
		return io.NopCloser(strings.NewReader("")), nil
	}}
	if _, err := open(t, Limits{Bytes: 5}).Add(t.Context(), "app", Content{Layers: []Blob{large}}, nil); codeOf(err) != sandbox.CodeTooLarge {
		t.Errorf("a layer that is said to be too large: %v", err)
	}
	// A layer that is known counts like one that comes.
	s := open(t, Limits{Bytes: 5})
	a, b := tarOf(t, entry{name: "a", content: "123"}), tarOf(t, entry{name: "b", content: "123"})
	add(t, s, "a", ociLayout(t, plain, a).tar(t))
	if _, err := s.Import(t.Context(), bytes.NewReader(ociLayout(t, plain, a, b).tar(t)), Import{Name: "app"}); codeOf(err) != sandbox.CodeTooLarge {
		t.Errorf("a known layer and a new one that are too large together: %v", err)
	}
}

// again reads the same bytes for ever.
type again struct {
	b  []byte
	at int
}

func (a *again) Read(p []byte) (int, error) {
	n := copy(p, a.b[a.at:])
	a.at = (a.at + n) % len(a.b)
	return n, nil
}

// What comes is bounded even where nothing comes of it.
func TestImportWithoutEnd(t *testing.T) {
	s := open(t, Limits{Bytes: 1, Entries: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, f := range []Format{Auto, Root} {
		_, err := s.Import(ctx, &again{b: gzipped(t, nil)}, Import{Name: "app", Format: f})
		if codeOf(err) != sandbox.CodeTooLarge {
			t.Errorf("%q: %v", f, err)
		}
		empty(t, s)
	}
}
