package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	mounts := []Mount{{Host: "/srv/out", Guest: Home + "/out"}, {Host: "/data", Guest: "/data"}}
	for _, c := range []struct {
		what  string
		paths string // separated by blanks; those that end with / are directories
		fault string // "" when they all fit
	}{
		{"files and directories", "a.txt d/ d/b.txt e/f/g.txt e/ d/ e/h", ""},
		{"other letters", "Main.py MAIN.PY main.pyc main", ""},
		{"the program", "main.py", "is the program's own file"},
		{"the program, not in its shortest form", "./main.py", "is the program's own file"},
		{"the program as a directory", "main.py/", "is the program's own file"},
		{"below the program", "main.py/a", "is the program's own file"},
		{"twice", "a/b a//b", "is given twice"},
		{"a file, then a directory", "a a/", "is a file and a directory"},
		{"a directory, then a file", "a/ a", "is a file and a directory"},
		{"a file, then one below it", "a a/b/c", `lies below "a"`},
		{"a file where a directory must be", "a/b a", "is a file and a directory"},
		{"into a mount", "out/x", "lies in what the host shows"},
		{"in place of a mount", "out", "lies in what the host shows"},
		{"the directory that a mount covers", "out/ outer", ""},
	} {
		l, err := NewLayout("main.py", mounts)
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(c.paths) {
			add := l.AddFile
			if strings.HasSuffix(name, "/") {
				add = l.AddDir
			}
			if err = add("files", name); err != nil {
				break
			}
		}
		if err == nil {
			_, err = l.Check()
		}
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || AsError(err).Field != "files"):
			t.Errorf("%s: %v, want %q", c.what, err, c.fault)
		}
	}
	for guest, fits := range map[string]bool{Home: false, "/home": false, Home + "/main.py": false, Home + "/main.py.d": true, "/data": true} {
		if _, err := NewLayout("main.py", []Mount{{Host: "/x", Guest: guest}}); (err == nil) != fits {
			t.Errorf("a mount at %s: %v", guest, err)
		}
	}
	if _, err := NewLayout("", []Mount{{Host: "/x", Guest: Home}}); err != nil {
		t.Errorf("a mount at home, and the program in it: %v", err)
	}
}

// Which path is to blame does not hang on how the paths are sorted: it is the one
// that was added later.
func TestLayoutBlamesTheLater(t *testing.T) {
	for _, c := range []struct {
		paths string
		which int
	}{
		{"z/1 a b z a", 3},
		{"b/x/y c b/x a", 2},
		{"d/ a/b.c a.b a/b a/b.c/d", 4},
		{"a a", 1},
	} {
		l, err := NewLayout("main.py", nil)
		for i, name := range strings.Fields(c.paths) {
			add := l.AddFile
			if strings.HasSuffix(name, "/") {
				add = l.AddDir
			}
			err = errors.Join(err, add(fmt.Sprintf("files[%d]", i), name))
		}
		if err != nil {
			t.Fatal(err)
		}
		if which, err := l.Check(); err == nil || which != c.which || AsError(err).Field != fmt.Sprintf("files[%d]", c.which) {
			t.Errorf("%s: %d: %v, want %d", c.paths, which, err, c.which)
		}
	}
}

// A path of a thousand bytes may have five hundred directories: what a request
// costs before anything is known of it must not grow with them.
func TestLayoutKeepsNoDirectories(t *testing.T) {
	names := make([]string, MaxFiles)
	for i := range names {
		names[i] = fmt.Sprintf("%05d", i) + strings.Repeat("/a", (MaxPathBytes-5)/2)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l, err := NewLayout("main.py", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := CheckGuestPath("files", name); err != nil {
			t.Fatal(err)
		}
		if err := l.AddFile("files", name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Check(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took, text := after.TotalAlloc-before.TotalAlloc, uint64(MaxFiles*MaxPathBytes); took > 5*text {
		t.Errorf("%d bytes of paths took %d bytes of memory", text, took)
	}
	if err := l.AddFile("files", names[7]+"/b"); err != nil {
		t.Fatal(err)
	}
	if which, err := l.Check(); err == nil || which != MaxFiles || !strings.Contains(err.Error(), "which is a file") {
		t.Errorf("a file below a file among them: %d, %v", which, err)
	}
}
