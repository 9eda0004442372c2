package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func file(text string) held { return held{kind: tar.TypeReg, sum: sha256.Sum256([]byte(text))} }

// layerOf is what becomes of an archive that came out of a sandbox.
func layerOf(t *testing.T, base map[string]held, list []tar.Header, contents map[string]string) ([]string, error) {
	t.Helper()
	spool, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	w := tar.NewWriter(spool)
	for _, h := range list {
		h.Size, h.ModTime = int64(len(contents[h.Name])), time.Now()
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, contents[h.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	c := &changes{spool: spool, base: base, places: []string{"/opt", "/usr/local"}}
	if err := c.look(t.Context()); err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w = tar.NewWriter(&layer)
	if err := errors.Join(c.write(t.Context(), w), w.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(epoch, 0)) || h.Uid != 0 {
			t.Errorf("%s has the time %s and the owner %d", h.Name, h.ModTime, h.Uid)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimRight(h.Name+" "+h.Linkname+string(text), " "))
	}
}

func TestChanges(t *testing.T) {
	base := map[string]held{
		"opt/same": file("same"), "opt/other": file("before"), "opt/mode": file("mode"), "opt/gone": file("gone"),
		"opt/dir": {kind: tar.TypeDir}, "opt/dir/in": file("in"), "opt/dir/sub": {kind: tar.TypeDir}, "opt/dir/sub/in": file("in"),
		"opt/becomes": {kind: tar.TypeDir}, "opt/becomes/in": file("in"), "opt/link": {kind: tar.TypeSymlink, link: "same"},
		"opt/old.pyc": file("old"), "usr/local/kept": {kind: tar.TypeDir}, "usr/local/kept/in": file("in"),
	}
	timed, hashed := "\xa7\r\r\n\x00\x00\x00\x00timetimecode", "\xa7\r\r\n\x03\x00\x00\x00hashhashcode"
	got, err := layerOf(t, base, []tar.Header{
		{Name: "usr/local/", Typeflag: tar.TypeDir},
		{Name: "usr/local/kept/", Typeflag: tar.TypeDir},
		{Name: "usr/local/kept/in", Typeflag: tar.TypeReg, Mode: 0o600},
		{Name: "opt/", Typeflag: tar.TypeDir},
		{Name: "opt/same", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "opt/other", Typeflag: tar.TypeReg},
		{Name: "opt/mode", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "opt/becomes", Typeflag: tar.TypeReg},
		{Name: "opt/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "opt/hard", Typeflag: tar.TypeLink, Linkname: "opt/same"},
		{Name: "opt/outside", Typeflag: tar.TypeLink, Linkname: "etc/passwd"},
		{Name: "opt/new/", Typeflag: tar.TypeDir},
		{Name: "opt/new/x.pyc", Typeflag: tar.TypeReg},
		{Name: "opt/new/y.pyc", Typeflag: tar.TypeReg},
		{Name: "opt/old.pyc", Typeflag: tar.TypeReg},
		{Name: "opt/null", Typeflag: tar.TypeChar},
		{Name: "opt/pipe", Typeflag: tar.TypeFifo},
		{Name: "etc/passwd", Typeflag: tar.TypeReg},
		{Name: "opt/../etc/shadow", Typeflag: tar.TypeReg},
	}, map[string]string{
		"usr/local/kept/in": "in", "opt/same": "same", "opt/other": "after", "opt/mode": "mode", "opt/becomes": "file", "opt/new/x.pyc": timed, "opt/new/y.pyc": hashed,
		"opt/old.pyc": timed, "etc/passwd": "evil", "opt/../etc/shadow": "evil",
	})
	want := []string{
		"opt/becomes file", "opt/hard same", "opt/link /etc/passwd", "opt/mode mode", "opt/new/", "opt/new/y.pyc " + hashed, "opt/other after",
		"opt/.wh.dir", "opt/.wh.gone",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
}

// What is no archive, or more than the disk holds, is refused.
func TestChangesRefuses(t *testing.T) {
	spool, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	if _, err := spool.Write(bytes.Repeat([]byte("no archive"), 1000)); err != nil {
		t.Fatal(err)
	}
	c := &changes{spool: spool, places: []string{"/opt"}}
	if err := c.look(t.Context()); fieldOf(err) != "layer" {
		t.Errorf("%v", err)
	}
	into := &atMost{w: io.Discard, left: 10}
	if _, err := into.Write(make([]byte, 11)); fieldOf(err) != "limits.disk" {
		t.Errorf("more than may be: %v", err)
	}
}

// Files of a package go where a link of the image's leads, as Debian has for /lib.
func TestLed(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil {
		t.Fatal(err)
	}
	files, ok := os.DirFS(root).(fs.ReadLinkFS)
	if !ok {
		t.Fatal("links of a directory cannot be read")
	}
	for name, want := range map[string]string{"./lib/x/y": "usr/lib/x/y", "lib": "", "./": "", "usr/lib/x": "usr/lib/x", "opt/lib/x": "opt/lib/x", "../lib/x": "usr/lib/x"} {
		if got := led(files, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
