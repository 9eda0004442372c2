package image

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestFingerprint(t *testing.T) {
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	base := fstest.MapFS{
		"usr/bin/gcc": program, "usr/include/stdio.h": {Data: []byte("int x;"), Mode: 0o644},
		"home/me/notes": {Data: []byte("mine"), Mode: 0o600}, "var/lib/dpkg/status": {Data: []byte("Package: gcc"), Mode: 0o644},
	}
	look := func(fs fstest.MapFS) (sum [32]byte, stamp string) {
		template, err := Host(fs)
		if err != nil {
			t.Fatal(err)
		}
		if sum, err = template.Fingerprint(t.Context(), fs); err != nil {
			t.Fatal(err)
		}
		return sum, template.Stamp(fs, []string{"/usr/bin/gcc", "-O2", "main.c"})
	}
	sum, stamp := look(base)
	if !strings.Contains(stamp, "/usr/bin/gcc") || !strings.Contains(stamp, "dpkg") {
		t.Fatalf("%q", stamp)
	}
	for name, c := range map[string]struct {
		path       string
		file       *fstest.MapFile // nil: it is removed
		sum, stamp bool            // what must change
	}{
		"nothing":                  {"usr/bin/gcc", program, false, false},
		"the compiler":             {"usr/bin/gcc", &fstest.MapFile{Data: []byte("\x7fELF2"), Mode: 0o755}, true, true},
		"the compiler's time":      {"usr/bin/gcc", &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755, ModTime: time.Unix(9, 9)}, true, true},
		"a header":                 {"usr/include/stdio.h", &fstest.MapFile{Data: []byte("int yy;"), Mode: 0o644}, true, false},
		"a header's mode":          {"usr/include/stdio.h", &fstest.MapFile{Data: []byte("int x;"), Mode: 0o600}, true, false},
		"a new header":             {"usr/include/z.h", &fstest.MapFile{}, true, false},
		"a header goes":            {"usr/include/stdio.h", nil, true, false},
		"a package":                {"var/lib/dpkg/status", &fstest.MapFile{Data: []byte("Package: g++")}, false, true},
		"a file that is not shown": {"home/me/notes", &fstest.MapFile{Data: []byte("else")}, false, false},
	} {
		changed := maps.Clone(base)
		if changed[c.path] = c.file; c.file == nil {
			delete(changed, c.path)
		}
		if s, st := look(changed); (s != sum) != c.sum || (st != stamp) != c.stamp {
			t.Errorf("%s: fingerprint changed %v, stamp changed %v", name, s != sum, st != stamp)
		}
	}
	template, err := Host(base)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := template.Fingerprint(ctx, base); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A file of the same size with its old time put back is still another one.
func TestFingerprintSeesWhatTouchHides(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "usr/include/x.h")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) [32]byte {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		sum, err := Template{Binds: []Bind{{Source: "/usr", Target: "/usr", Dir: true}}}.Fingerprint(t.Context(), os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := write("int a;")
	time.Sleep(20 * time.Millisecond) // the kernel's clock for files is coarse
	if write("int b;") == first {
		t.Error("the change is not seen")
	}
}
