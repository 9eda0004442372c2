package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

// unread returns the names and contents of an archive, as another tool reads it.
func unread(t *testing.T, f Format, b []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string, r io.Reader) {
		t.Helper()
		c, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !filepath.IsLocal(name) {
			t.Errorf("%q is not a local name", name)
		}
		all[name] = string(c)
	}
	if f == Zip {
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range z.File {
			if !e.Mode().IsRegular() && !e.Mode().IsDir() {
				t.Errorf("%s is %v", e.Name, e.Mode())
			}
			r, err := e.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(e.Name, r)
		}
		return all
	}
	var r io.Reader = bytes.NewReader(b)
	if f == TarGzip {
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = z
	}
	for s := tar.NewReader(r); ; {
		h, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			t.Errorf("%s is of type %c", h.Name, h.Typeflag)
		}
		add(h.Name, s)
	}
}

func TestPack(t *testing.T) {
	big := strings.Repeat("0123456789", 20_000)
	for _, f := range Formats() {
		m := newMemory()
		m.put("out/a", "1")
		m.put("out/-rf", "a name")
		m.put("out/d/e/big", big)
		m.put("out/empty", "")
		m.put("out/"+strings.Repeat("n", 255), "long")
		m.put("beside", "not in it")
		m.put("out/line\nfeed", "skipped")
		m.put("out/esc\x1b[2J", "skipped")
		m.put("out/shrunk", "short")
		m.put("out/gone", "")
		m.files[home+"/out/link"] = node{kind: sandbox.FileSymlink}
		m.files[home+"/out/pipe"] = node{kind: sandbox.FileOther}
		m.files[home+"/out/a2"] = node{kind: sandbox.FileRegular, mode: 0o4755, content: "s"}
		m.grown = map[string]int64{home + "/out/shrunk": 5, home + "/out/gone": gone}
		for _, root := range []string{"out", home + "/out", home + "/out/"} {
			var b bytes.Buffer
			s, err := Pack(t.Context(), m, root, f, Limits{}, &b)
			if err != nil {
				t.Fatal(err)
			}
			if want := (Summary{Files: 7, Directories: 2, Bytes: int64(len(big)) + 1 + 6 + 4 + 10 + 1, Skipped: 5, Changed: 1}); s != want {
				t.Errorf("%s: %+v, want %+v", f, s, want)
			}
			want := map[string]string{
				"a": "1", "a2": "s", "-rf": "a name", "d/": "", "d/e/": "", "d/e/big": big, "empty": "", strings.Repeat("n", 255): "long",
				"shrunk": "short\x00\x00\x00\x00\x00",
			}
			if diff := cmp.Diff(want, unread(t, f, b.Bytes())); diff != "" {
				t.Errorf("%s (-want +got):\n%s", f, diff)
			}
		}
	}
}

// What was packed can be unpacked.
func TestPackUnpack(t *testing.T) {
	for _, f := range Formats() {
		from, to := newMemory(), newMemory()
		from.put("out/d/a", "content")
		from.put("out/b", strings.Repeat("x", 70_000))
		_ = from.Mkdir(t.Context(), "out/none", 0o700)
		var b bytes.Buffer
		if _, err := Pack(t.Context(), from, "out", f, Limits{}, &b); err != nil {
			t.Fatal(err)
		}
		if _, err := Unpack(t.Context(), &b, "out", f, Limits{Dir: t.TempDir()}, to); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(from.files, to.files, cmp.AllowUnexported(node{})); diff != "" {
			t.Errorf("%s:\n%s", f, diff)
		}
	}
}

func TestPackErrors(t *testing.T) {
	m := newMemory()
	m.put("a", "1")
	m.put("b", "2")
	for _, f := range Formats() {
		var b bytes.Buffer
		if _, err := Pack(t.Context(), m, ".", f, Limits{Entries: 1}, &b); code(err) != sandbox.CodeTooLarge || b.Len() != 0 {
			t.Errorf("too many: %v, %d bytes", err, b.Len())
		}
		full := errors.New("full")
		if _, err := Pack(t.Context(), m, ".", f, Limits{}, broke{full}); !errors.Is(err, full) {
			t.Errorf("a writer that fails: %v", err)
		}
	}
	if _, err := Pack(t.Context(), m, ".", "rar", Limits{}, io.Discard); code(err) != sandbox.CodeRequestInvalid {
		t.Errorf("an unknown format: %v", err)
	}
}

// Files count as long as they look, whatever they take; nothing is written of what
// is too much.
func TestPackIsBounded(t *testing.T) {
	m := newMemory()
	m.put("d/a", "12345")
	m.put("d/b", "123456")
	for _, f := range Formats() {
		var b bytes.Buffer
		_, err := Pack(t.Context(), m, ".", f, Limits{Bytes: 10}, &b)
		if e := sandbox.AsError(err); code(err) != sandbox.CodeTooLarge || b.Len() != 0 || !strings.Contains(e.Message, "/d/b with 6B") || e.Hint == "" {
			t.Errorf("%s: %v, %d bytes", f, err, b.Len())
		}
		if sum, err := Pack(t.Context(), m, ".", f, Limits{Bytes: 11}, &b); err != nil || sum.Bytes != 11 || sum.Skipped != 0 {
			t.Errorf("%s: %+v, %v", f, sum, err)
		}
	}
}

type broke struct{ err error }

func (b broke) Write([]byte) (int, error) { return 0, b.err }

func TestParseFormat(t *testing.T) {
	for s, want := range map[string]Format{"tar": Tar, "tar.gz": TarGzip, "tgz": TarGzip, "zip": Zip} {
		if f, err := ParseFormat(s); err != nil || f != want || f.MediaType() == "" {
			t.Errorf("%s: %q, %v", s, f, err)
		}
	}
	if _, err := ParseFormat("r\x1bar"); code(err) != sandbox.CodeRequestInvalid || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}

// Files whose names cannot be printed are never in a listing. That they are
// missing from the archive is said all the same.
func TestPackCountsNamesThatCannotBePrinted(t *testing.T) {
	m := newMemory()
	m.put("a", "1")
	m.unprintable = 2
	for _, f := range Formats() {
		sum, err := Pack(t.Context(), m, ".", f, Limits{}, io.Discard)
		if err != nil || sum.Files != 1 || sum.Skipped != 2 {
			t.Errorf("%s: %+v %v", f, sum, err)
		}
	}
}
