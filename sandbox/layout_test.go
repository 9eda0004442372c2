package sandbox

import (
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
