//go:build linux

package template

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func blob(t *testing.T, list ...entry) Blob {
	t.Helper()
	text := tarOf(t, list...)
	return Blob{Size: int64(len(text)), Open: func(context.Context) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			_, err := w.Write(text)
			_ = w.CloseWithError(err)
		}()
		return r, nil
	}}
}

func hold(t *testing.T, s *Store) io.Closer {
	t.Helper()
	h, err := s.Hold()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// An image is shown as an overlay of its layers would show it.
func TestWalk(t *testing.T) {
	s := open(t, Limits{})
	h := hold(t, s)
	defer h.Close()
	image, err := s.Compose(t.Context(), Composition{More: []Blob{
		blob(t, entry{name: "a/low", content: "1"}, entry{name: "a/gone", content: "1"}, entry{name: "a/dir/in", content: "1"}, entry{name: "a/closed/in", content: "1"},
			entry{name: "a/becomes/in", content: "1"}, entry{name: "a/link -> dir"}, entry{name: "outside", content: "1"}),
		blob(t, entry{name: "a/.wh.gone"}, entry{name: "a/low", content: "2"}, entry{name: "a/closed/.wh..wh..opq"}, entry{name: "a/closed/new", content: "2"},
			entry{name: "a/becomes", content: "file"}, entry{name: "a/dir/also", content: "2"}),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, back, err := s.Lend(image)
	if err != nil {
		t.Fatal(err)
	}
	defer back()
	u, err := s.Use(string(id))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	var got []string
	err = u.Walk(t.Context(), "a", func(e Shown) error {
		text := e.Path
		switch {
		case e.Info.IsDir():
			text += "/"
		case e.Info.Mode()&fs.ModeSymlink != 0:
			text += " -> " + e.Link
		default:
			f, err := e.Open()
			if err != nil {
				return err
			}
			defer f.Close()
			content, err := io.ReadAll(f)
			text += " = " + string(content)
			got = append(got, text)
			return err
		}
		got = append(got, text)
		return nil
	})
	want := []string{"a/becomes = file", "a/closed/", "a/closed/new = 2", "a/dir/", "a/dir/also = 2", "a/dir/in = 1", "a/link -> dir", "a/low = 2"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	for _, nothing := range []string{"b", "a/low", "a/link", "a/gone"} {
		if err := u.Walk(t.Context(), nothing, func(e Shown) error { t.Errorf("%s shows %s", nothing, e.Path); return nil }); err != nil {
			t.Error(err)
		}
	}
}

// What a build lends is gone when it gives it back, and after the death of its process
// with the next opening; what was built is known for as long as all of it is there.
func TestLendAndBuilt(t *testing.T) {
	s := open(t, Limits{})
	h := hold(t, s)
	image, err := s.Compose(t.Context(), Composition{More: []Blob{blob(t, entry{name: "f", content: "1"})}, Config: Config{Places: []string{"/opt"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	records := func() int {
		list, err := os.ReadDir(s.path("images"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	one, back, err := s.Lend(image)
	if err != nil {
		t.Fatal(err)
	}
	two, backToo, err := s.Lend(image)
	if err != nil || records() != 2 || one == two {
		t.Fatalf("%v, %d records, %s and %s", err, records(), one, two)
	}
	back()
	if _, err := s.Get(string(two)); err != nil {
		t.Errorf("one build gives back what another has: %v", err)
	}
	backToo()
	if n := records(); n != 0 {
		t.Errorf("%d records after they were given back", n)
	}
	if _, _, err := s.Lend(image); err != nil {
		t.Fatal(err)
	}
	key := Hash([]byte("declaration"))
	if err := s.SetBuilt(key, image); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Built(key); !ok || got.ID != image.ID {
		t.Errorf("%v %s, want %s", ok, got.ID, image.ID)
	}
	if _, ok := s.Built(Hash([]byte("another"))); ok {
		t.Error("what was never built is known")
	}
	_ = h.Close() // as the kernel does with the lock of a process that died
	if _, err := Open(s.dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	if n := records(); n != 0 {
		t.Errorf("%d records after the next opening", n)
	}
	if left, _ := filepath.Glob(s.path("tmp", "*")); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Built(key); ok {
		t.Error("it is known though its layer is gone")
	}
	if left, _ := os.ReadDir(s.path("builds")); len(left) != 0 {
		t.Errorf("%d records of builds are left", len(left))
	}
}
