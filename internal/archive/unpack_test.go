package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

func TestUnpack(t *testing.T) {
	for f, make := range makers {
		t.Run(string(f), func(t *testing.T) {
			m := newMemory()
			m.put("in/old", "stays")
			m.put("in/file", "is replaced")
			s, err := unpack(t, m, make(t,
				item{name: "./"}, item{name: "./file", content: "new", mode: 0o755}, item{name: "empty"}, item{name: "d/"},
				item{name: "d/e/f/deep", content: strings.Repeat("x", 100_000)}, item{name: "d/e/"}, item{name: "-rf", content: "a name"}), f, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if want := (Summary{Files: 4, Directories: 2, Bytes: 100_009}); s != want {
				t.Errorf("%+v, want %+v", s, want)
			}
			for name, want := range map[string]string{"in/old": "stays", "in/file": "new", "in/empty": "", "in/d/e/f/deep": strings.Repeat("x", 100_000), "in/-rf": "a name"} {
				if n := m.files[m.Absolute(name)]; n.content != want || n.kind != sandbox.FileRegular {
					t.Errorf("%s: %d bytes, %s", name, len(n.content), n.kind)
				}
			}
			if n := m.files[home+"/in/file"]; n.mode != 0o755 {
				t.Errorf("mode %o", n.mode)
			}
			if len(m.files) != 11 { // nothing is left of the waiting place
				t.Errorf("%d names: %v", len(m.files), m.snapshot())
			}
		})
	}
}

// naive unpacks as many a tool does, below root/in. It is the control: what it
// lets happen must not happen to us.
func naive(t *testing.T, f Format, b []byte) (root string) {
	t.Helper()
	root = t.TempDir()
	in := filepath.Join(root, "a", "in")
	if err := os.MkdirAll(in, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, link string, dir bool, mode fs.FileMode, r io.Reader) {
		p := filepath.Join(in, name)
		if strings.HasPrefix(name, "/") {
			p = filepath.Join(root, name) // the root of a machine that we may spoil
		}
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		switch {
		case dir:
			_ = os.MkdirAll(p, 0o755)
		case link != "":
			_ = os.Symlink(link, p)
		default:
			w, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
			if err != nil {
				return
			}
			_, _ = io.Copy(w, r)
			_ = w.Close()
			_ = os.Chmod(p, mode)
		}
	}
	if f == Zip {
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range z.File {
			r, err := e.Open()
			if err != nil {
				continue
			}
			link := ""
			if e.Mode()&fs.ModeSymlink != 0 {
				to, _ := io.ReadAll(r)
				link = string(to)
			}
			put(strings.ReplaceAll(e.Name, `\`, "/"), link, e.Mode().IsDir(), e.Mode(), r)
		}
		return root
	}
	r := tar.NewReader(bytes.NewReader(b))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		if h.Typeflag == tar.TypeLink {
			_ = os.Link(filepath.Join(in, h.Linkname), filepath.Join(in, h.Name))
			continue
		}
		put(h.Name, h.Linkname, h.Typeflag == tar.TypeDir, h.FileInfo().Mode(), r)
	}
	return root
}

func fileText(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		return "missing"
	}
	return string(b)
}

// Every hostile archive is refused with the name of its entry, and changes
// nothing; the control shows that it would have done harm.
func TestHostileArchives(t *testing.T) {
	good := item{name: "file", content: "replaced?"}
	in := filepath.Join("a", "in")
	outside := func(t *testing.T, root string) bool { return fileText(t, filepath.Join(root, "a", "evil")) == "pwned" }
	for _, test := range []struct {
		name    string
		formats []Format
		items   []item
		entry   string
		control func(t *testing.T, root string) bool
	}{
		{"a path that leaves", []Format{Tar, Zip}, []item{{name: "../evil", content: "pwned"}}, "../evil", outside},
		{"a path that leaves from below", []Format{Tar, Zip}, []item{{name: "d/../../evil", content: "pwned"}}, "d/../../evil", outside},
		{"a directory that leaves", []Format{Tar, Zip}, []item{{name: "../evildir/"}}, "../evildir/", func(_ *testing.T, root string) bool {
			_, err := os.Stat(filepath.Join(root, "a", "evildir"))
			return err == nil
		}},
		{"an absolute path", []Format{Tar, Zip}, []item{{name: "/etc/evil", content: "pwned"}}, "/etc/evil", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, "etc/evil")) == "pwned"
		}},
		{"backslashes", []Format{Zip}, []item{{name: `..\evil`, content: "pwned"}}, "evil", outside},
		{"a link, then a file below it", []Format{Tar, Zip}, []item{{name: "l", link: ".."}, {name: "l/evil", content: "pwned"}}, "l", outside},
		{"a link over which a file is written", []Format{Tar, Zip}, []item{{name: "l", link: "../evil"}, {name: "l", content: "pwned"}}, "l", outside},
		{"a hard link", []Format{Tar}, []item{{name: "h", hard: "../../a/in/file"}}, "h", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "h")) == "replaced?"
		}},
		{"a name twice", []Format{Tar, Zip}, []item{{name: "x", content: "looked at"}, {name: "x", content: "pwned"}}, "x", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "x")) == "pwned"
		}},
		{"a line feed in a name", []Format{Tar, Zip}, []item{{name: "a\nb", content: "pwned"}}, `a\nb`, func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "a\nb")) == "pwned"
		}},
		{"an escape in a name", []Format{Tar, Zip}, []item{{name: "a\x1b[2Jb", content: "pwned"}}, "[2Jb", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "a\x1b[2Jb")) == "pwned"
		}},
		{"a name that turns around", []Format{Tar, Zip}, []item{{name: "a\u202etxt.exe", content: "pwned"}}, "txt.exe", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "a\u202etxt.exe")) == "pwned"
		}},
		{"a file where a directory must be", []Format{Tar, Zip}, []item{{name: "x", content: "pwned"}, {name: "x/y", content: "pwned"}}, "x/y", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "x")) == "pwned"
		}},
		{"a directory that becomes a file", []Format{Tar, Zip}, []item{{name: "x/y", content: "pwned"}, {name: "x", content: "pwned"}}, "x", func(t *testing.T, root string) bool {
			return fileText(t, filepath.Join(root, in, "x/y")) == "pwned"
		}},
	} {
		for _, f := range test.formats {
			t.Run(test.name+"/"+string(f), func(t *testing.T) {
				b := makers[f](t, append([]item{good}, test.items...)...)
				if !test.control(t, naive(t, f, b)) {
					t.Fatal("no control: nothing happens to a tool that does not check")
				}
				m := newMemory()
				m.put("in/file", "kept")
				before := m.snapshot()
				_, err := unpack(t, m, b, f, Limits{})
				if code(err) != sandbox.CodeUnsafeArchive || !strings.Contains(err.Error(), test.entry) {
					t.Errorf("%v (%s)", err, code(err))
				}
				if strings.ContainsAny(err.Error(), "\x1b\n\u202e") {
					t.Errorf("the message is not safe to print: %q", err)
				}
				if diff := cmp.Diff(before, m.files, cmp.AllowUnexported(node{})); diff != "" {
					t.Errorf("something changed (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// What has no meaning for a sandbox is refused by its type.
func TestForbiddenTypes(t *testing.T) {
	for name, i := range map[string]item{
		"character device": {name: "x", kind: tar.TypeChar}, "block device": {name: "x", kind: tar.TypeBlock}, "pipe": {name: "x", kind: tar.TypeFifo},
		"contiguous": {name: "x", kind: tar.TypeCont}, "an unknown type": {name: "x", kind: 'Z'},
		"an old GNU sparse file": {name: "x", kind: tar.TypeGNUSparse},
	} {
		if _, err := unpack(t, newMemory(), forced(t, i), Tar, Limits{}); code(err) != sandbox.CodeUnsafeArchive {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What git puts before its archives says nothing about files.
	global := slices.Concat(forced(t, item{name: "pax_global_header", kind: tar.TypeReg})[:512], makeTar(t, item{name: "f", content: "x"}))
	global[156] = tar.TypeXGlobalHeader
	seal(global)
	if s, err := unpack(t, newMemory(), global, Tar, Limits{}); err != nil || s.Files != 1 {
		t.Errorf("a global header: %+v, %v", s, err)
	}
	for name, mode := range map[string]fs.FileMode{"pipe": fs.ModeNamedPipe, "device": fs.ModeDevice, "socket": fs.ModeSocket} {
		if _, err := unpack(t, newMemory(), makeZip(t, item{name: "x", mode: mode}), Zip, Limits{}); code(err) != sandbox.CodeUnsafeArchive {
			t.Errorf("%s: %v", name, err)
		}
	}
	setuid := newMemory()
	if _, err := unpack(t, setuid, makeTar(t, item{name: "x", mode: 0o4755}), Tar, Limits{}); err != nil || setuid.files[home+"/in/x"].mode != 0o755 {
		t.Errorf("set-user-id: %v, %o", err, setuid.files[home+"/in/x"].mode)
	}
}

// forced is a tar with one header whose type is written over.
func forced(t *testing.T, i item) []byte {
	t.Helper()
	kind := i.kind
	i.kind = 0
	b := makeTar(t, i)
	b[156] = kind
	seal(b)
	return b
}

// seal corrects the checksum of the first header.
func seal(b []byte) {
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func TestLimits(t *testing.T) {
	var many []item
	for i := range 50 {
		many = append(many, item{name: fmt.Sprintf("f%d", i), content: "12345"})
	}
	deep := item{name: strings.Repeat("d/", 100) + "f"}
	bomb := strings.Repeat("\x00", 40<<20)
	for f, make := range makers {
		for _, test := range []struct {
			name  string
			b     []byte
			tight Limits
			loose Limits
		}{
			{"entries", make(t, many...), Limits{Entries: 49}, Limits{Entries: 50}},
			{"directories in between", make(t, deep), Limits{Entries: 100}, Limits{Entries: 101}},
			{"bytes together", make(t, many...), Limits{Bytes: 249}, Limits{Bytes: 250}},
			{"bytes of one", make(t, item{name: "f", content: "12345"}), Limits{Bytes: 4}, Limits{Bytes: 5}},
			{"ratio", make(t, item{name: "bomb", content: bomb}), Limits{Ratio: 100}, Limits{Ratio: 2000}},
			{"spool", make(t, item{name: "f", content: "x"}), Limits{Spool: 20}, Limits{}},
		} {
			if test.name == "ratio" && f == Tar || test.name == "spool" && f != Zip {
				continue
			}
			m := newMemory()
			before := m.snapshot()
			if _, err := unpack(t, m, test.b, f, test.tight); code(err) != sandbox.CodeUnsafeArchive {
				t.Errorf("%s, %s: %v", f, test.name, err)
			}
			if diff := cmp.Diff(before, m.files, cmp.AllowUnexported(node{})); diff != "" {
				t.Errorf("%s, %s: something changed:\n%s", f, test.name, diff)
			}
			if _, err := unpack(t, m, test.b, f, test.loose); err != nil {
				t.Errorf("%s, %s: %v", f, test.name, err)
			}
		}
	}
}

// A stream that unfolds without end is cut, whatever it unfolds to.
func TestHeadersAreBounded(t *testing.T) {
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for i := range 100 {
		h := &tar.Header{Name: fmt.Sprintf("f%d", i), Typeflag: tar.TypeReg, PAXRecords: map[string]string{"PINFOLD.x": strings.Repeat("\x01", 900_000)}}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	for f, b := range map[Format][]byte{Tar: plain.Bytes(), TarGzip: compress(t, plain.Bytes())} {
		if _, err := unpack(t, newMemory(), b, f, Limits{Bytes: 1 << 20, Entries: 1000}); code(err) != sandbox.CodeUnsafeArchive {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// A zip whose directory is far larger than its entries may be is not put into
// memory.
func TestZipDirectoryIsBounded(t *testing.T) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range 60 {
		f, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprint(i), Comment: strings.Repeat("c", 60_000)})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write([]byte("x"))
	}
	_ = w.Close()
	if _, err := unpack(t, newMemory(), b.Bytes(), Zip, Limits{Entries: 100}); code(err) != sandbox.CodeUnsafeArchive {
		t.Errorf("%v", err)
	}
}

// A zip whose entries share their bytes is refused before anything is unfolded.
func TestZipOverlap(t *testing.T) {
	random := make([]byte, 20_000)
	for i := range random {
		random[i] = byte(rand.Uint32()) //nolint:gosec // any number will do
	}
	b := makeZip(t, item{name: "a", content: string(random)}, item{name: "b", content: "x"})
	// The second entry of the directory gets the sizes and the place of the first.
	first := bytes.Index(b, []byte("PK\x01\x02"))
	second := first + 4 + bytes.Index(b[first+4:], []byte("PK\x01\x02"))
	copy(b[second+16:second+28], b[first+16:first+28])
	copy(b[second+42:second+46], b[first+42:first+46])
	root := naive(t, Zip, b)
	if fileText(t, filepath.Join(root, "a/in/b")) != string(random) {
		t.Fatal("no control: other tools do not unfold it twice")
	}
	if _, err := unpack(t, newMemory(), b, Zip, Limits{}); code(err) != sandbox.CodeUnsafeArchive || !strings.Contains(err.Error(), "shares") {
		t.Errorf("%v", err)
	}
}

func TestDamaged(t *testing.T) {
	items := []item{{name: "a", content: strings.Repeat("hello ", 3000)}, {name: "b", content: "x"}}
	for f, make := range makers {
		whole := make(t, items...)
		for _, n := range []int{0, 1, 100, 600, len(whole) / 2, len(whole) - 1100} {
			if n < 0 || n >= len(whole) {
				continue
			}
			m := newMemory()
			before := m.snapshot()
			_, err := unpack(t, m, whole[:n], f, Limits{})
			if f == Tar && n == len(whole)-1100 {
				continue // cut between two entries, which tar cannot tell
			}
			if code(err) != sandbox.CodeUnsafeArchive {
				t.Errorf("%s, %d of %d bytes: %v", f, n, len(whole), err)
			}
			if diff := cmp.Diff(before, m.files, cmp.AllowUnexported(node{})); diff != "" {
				t.Errorf("something changed:\n%s", diff)
			}
		}
		if _, err := unpack(t, newMemory(), []byte(strings.Repeat("not an archive ", 100)), f, Limits{}); code(err) != sandbox.CodeUnsafeArchive {
			t.Errorf("%s, no archive at all: %v", f, err)
		}
		broken := errors.New("the line went dead")
		r := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), iotest.ErrReader(broken))
		_, err := Unpack(t.Context(), r, "in", f, Limits{Dir: t.TempDir()}, newMemory())
		if code(err) != sandbox.CodeRequestInvalid || !errors.Is(err, broken) {
			t.Errorf("%s, a broken connection: %v", f, err)
		}
	}
}

// Whichever call of the sink fails, everything that was made is removed again.
func TestRollback(t *testing.T) {
	items := []item{{name: "d/"}, {name: "d/a", content: "1"}, {name: "e/f/b", content: "2"}, {name: "c", content: "3"}, {name: "old/x", content: "4"}}
	for f, make := range makers {
		b := make(t, items...)
		for _, there := range []string{"nothing", "an empty directory", "files"} {
			for fail := 1; ; fail++ {
				m := newMemory()
				switch there {
				case "an empty directory":
					_ = m.Mkdir(t.Context(), "in", 0o755)
					m.calls = 0
				case "files":
					m.put("in/old/y", "kept")
				}
				before := m.snapshot()
				m.fail = fail
				_, err := unpack(t, m, b, f, Limits{})
				if m.calls < fail {
					if err != nil {
						t.Fatalf("%s: nothing failed, and yet: %v", f, err)
					}
					break
				}
				if code(err) != sandbox.CodeTooLarge {
					t.Errorf("%s, %s, call %d: %v", f, there, fail, err)
				}
				if diff := cmp.Diff(before, m.files, cmp.AllowUnexported(node{})); diff != "" {
					t.Errorf("%s, %s, call %d: left behind:\n%s", f, there, fail, diff)
				}
			}
		}
	}
}

// What is there already and cannot give way is found before anything changes.
func TestOccupied(t *testing.T) {
	link := node{kind: sandbox.FileSymlink}
	for name, there := range map[string]struct {
		path string
		node node
		root string
	}{
		"a link where a file goes":        {home + "/in/d/f", link, "in"},
		"a link where a directory goes":   {home + "/in/d", link, "in"},
		"a directory where a file goes":   {home + "/in/d/f", node{kind: sandbox.FileDir}, "in"},
		"a file where a directory goes":   {home + "/in/d", node{kind: sandbox.FileRegular}, "in"},
		"a pipe where a file goes":        {home + "/in/d/f", node{kind: sandbox.FileOther}, "in"},
		"a file where the root should be": {home + "/in", node{kind: sandbox.FileRegular}, "in"},
		"a link where the root should be": {home + "/in", link, "in"},
	} {
		m := newMemory()
		m.files[there.path] = there.node
		_ = m.parents(there.path)
		before := m.snapshot()
		_, err := Unpack(t.Context(), bytes.NewReader(makeTar(t, item{name: "a", content: "1"}, item{name: "d/f", content: "2"})), there.root, Tar, Limits{}, m)
		if c := code(err); c != sandbox.CodeNotRegularFile && c != sandbox.CodePathInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, m.files, cmp.AllowUnexported(node{})); diff != "" {
			t.Errorf("%s: something changed:\n%s", name, diff)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	dir := f.TempDir()
	for i, format := range Formats() {
		f.Add(makers[format](f, item{name: "d/"}, item{name: "d/a", content: "hello"}, item{name: "l", link: "/etc"}), i)
		f.Add(makers[format](f, item{name: "../x", content: "y"}), i)
		f.Add(makers[format](f, item{name: "f", content: strings.Repeat("z", 5000)}), i)
	}
	f.Fuzz(func(t *testing.T, b []byte, i int) {
		format := Formats()[uint(i)%3] //nolint:gosec // any number will do
		m := newMemory()
		m.put("kept", "kept")
		before := m.snapshot()
		_, err := Unpack(t.Context(), bytes.NewReader(b), "in", format, Limits{Entries: 100, Bytes: 1 << 20, Spool: 1 << 20, Dir: dir}, m)
		if err != nil {
			if code(err) != sandbox.CodeUnsafeArchive {
				t.Fatalf("%v", err)
			}
			if diff := cmp.Diff(before, m.files, cmp.AllowUnexported(node{})); diff != "" {
				t.Fatalf("something changed:\n%s", diff)
			}
		}
		for p, n := range m.files {
			if _, old := before[p]; !old && p != home+"/in" && !strings.HasPrefix(p, home+"/in/") {
				t.Fatalf("%q was made", p)
			}
			if strings.Contains(p, ".pinfold-unpack-") || n.kind != sandbox.FileDir && n.kind != sandbox.FileRegular || n.mode > 0o777 {
				t.Fatalf("%q is left, %+v", p, n)
			}
		}
	})
}

// A sink's error about a file that waits has the file's own name.
func TestErrorsNameTheEntry(t *testing.T) {
	u := &unpacking{root: "in", stage: "in/.stage"}
	err := u.named(&sandbox.Error{Code: sandbox.CodeTooLarge, Message: u.waiting(7) + ": full"}, 7, "a/b")
	if e := sandbox.AsError(err); e.Message != "in/a/b: full" || e.Code != sandbox.CodeTooLarge {
		t.Errorf("%+v", e)
	}
}

// A compressed archive that is taken for another is told what it is.
func TestUnpackNamesTheFormat(t *testing.T) {
	for f, head := range map[Format]string{TarGzip: "\x1f\x8b\x08\x00", Zip: "PK\x03\x04"} {
		_, err := unpack(t, newMemory(), []byte(head+strings.Repeat("x", 600)), Tar, Limits{})
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeUnsafeArchive || e.Field != "format" || e.Hint != "nothing was unpacked; say that its format is "+string(f) {
			t.Errorf("%s: %+v", f, e)
		}
	}
}
