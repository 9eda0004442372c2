//go:build linux

package template

import (
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// An overlay gets each layer once, and none below one whose root hides them: it refuses
// the same directory twice, and pays no heed to the root's mark.
func TestResolveLayers(t *testing.T) {
	s := open(t, Limits{})
	users := entry{name: "etc/passwd", content: "app:x:7:7::/home/app:/bin/sh\n"}
	file := func(name string) []byte { return tarOf(t, users, entry{name: name, content: name}) }
	opaque := tarOf(t, entry{name: ".wh..wh..opq"}, users, entry{name: "new", content: "new"})
	for name, test := range map[string]struct {
		tars [][]byte
		want int
		sees string // and not
		not  string
	}{
		"twice":  {[][]byte{file("one"), file("two"), file("one")}, 2, "one", ""},
		"opaque": {[][]byte{file("secret"), opaque, file("last")}, 2, "new", "secret"},
		"usual":  {[][]byte{file("one"), file("two")}, 2, "two", ""},
	} {
		add(t, s, name, ociLayout(t, gzipped, test.tars...).tar(t))
		got, err := s.Resolve(name, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Layers.Dirs) != test.want || got.Layers.Under != s.path("layers") || filepath.IsAbs(got.Layers.Dirs[0]) {
			t.Errorf("%s: layers %+v", name, got.Layers)
		}
		u, err := s.Use(name)
		if err != nil {
			t.Fatal(err)
		}
		root, done, err := u.Files()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := root.Lstat(test.sees); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := root.Lstat(test.not); test.not != "" && err == nil {
			t.Errorf("%s: %s is seen", name, test.not)
		}
		done()
		u.Close()
		if whole, err := s.Check(t.Context(), name, nil); err != nil || len(whole) > 0 {
			t.Errorf("%s: %q, %v", name, whole, err)
		}
	}
}

// Commands start where the image says.
func TestResolveWorkDir(t *testing.T) {
	s := open(t, Limits{})
	l := ociLayout(t, gzipped, tarOf(t, entry{name: "etc/passwd", content: "app:x:7:7::/home/app:/bin/sh\n"}, entry{name: "srv/app/main", content: "x"}))
	add(t, s, "works", l.tar(t))
	got, err := s.Resolve("works", nil)
	if err != nil || got.WorkDir != "/srv" {
		t.Errorf("%q, %v", got.WorkDir, err)
	}
}

// An image through which looking takes without end is refused in time.
func TestResolveEnds(t *testing.T) {
	s := open(t, Limits{})
	deep := strings.TrimSuffix(strings.Repeat("d/", 20), "/")
	var tars [][]byte
	for i := range 100 {
		list := []entry{{name: deep + "/f" + strings.Repeat("x", i)}}
		if i == 0 {
			for n := range 39 {
				list = append(list, entry{name: deep + "/" + string(rune('A'+n)) + " -> /" + deep + "/" + string(rune('A'+n+1))})
			}
		}
		tars = append(tars, tarOf(t, list...))
	}
	l := ociLayout(t, gzipped, tars...)
	add(t, s, "endless", l.tar(t))
	u, err := s.Use("endless")
	if err != nil {
		t.Fatal(err)
	}
	root, done, err := u.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer u.Close()
	if left := root.looks.Load(); left != maxLooks {
		t.Fatalf("%d looks are left at the beginning", left)
	}
	root.looks.Store(maxLooks / 10) // each takes long
	for range maxLooks {
		if _, err := root.Lstat(deep + "/A"); err != nil {
			break
		}
	}
	if !root.spent() {
		t.Errorf("it still looks, and has %d left", root.looks.Load())
	}
}

// A name that no template can have names none, however long it is.
func TestGetAbsurdNames(t *testing.T) {
	s := open(t, Limits{})
	for _, name := range []string{strings.Repeat("a", 10_000), strings.Repeat("%", 100), "..", "a\x00b", "", "a//b"} {
		if _, err := s.Get(name); err == nil || sandbox.AsError(err).Code != sandbox.CodeTemplateUnknown {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
