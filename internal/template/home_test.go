//go:build linux

package template

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/filetree"
	"pinfold/internal/image"
)

// What an image has in its user's home comes out as programs would see it, and as much as
// was measured: nothing of what a higher layer hides, nothing that a link leads to.
func TestHome(t *testing.T) {
	s := open(t, Limits{})
	h := hold(t, s)
	defer h.Close()
	large := strings.Repeat("0123456789", 60_000)
	made, err := s.Compose(t.Context(), Composition{Config: Config{User: "1000"}, More: []Blob{
		blob(t, entry{name: "home/user/low", content: "1"}, entry{name: "home/user/gone", content: "1"}, entry{name: "home/user/dir/deep/in", content: large},
			entry{name: "home/user/closed/in", content: "1"}, entry{name: "home/user/out -> /etc"}, entry{name: "home/other/x", content: "1"}, entry{name: "etc/secret", content: "1"}),
		blob(t, entry{name: "home/user/.wh.gone"}, entry{name: "home/user/low", content: "22"}, entry{name: "home/user/closed/.wh..wh..opq"},
			entry{name: "home/user/dir/run", content: "3", mode: 0o755}),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Keep("homed", made, Origin{}); err != nil {
		t.Fatal(err)
	}
	found, err := s.Resolve("homed", nil)
	if want := (image.Home{Bytes: (1 + 147 + 1) * page, Entries: 7}); err != nil || found.Home != want {
		t.Errorf("%+v, want %+v: %v", found.Home, want, err)
	}
	u, err := s.Use("homed")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	got := written(t, u, "/home/user")
	want := []string{
		"place home", "dir closed", "up 755", "dir dir", "dir deep", fmt.Sprintf("file in 644 %d 0123", len(large)), "up 755", "file run 755 1 3", "up 755",
		"file low 644 2 22", "link out /etc", "up 755", "end",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	for _, none := range []string{"/home/nobody", "/etc/secret", "/home/user/out"} { // not there, a file, a link
		if got := written(t, u, none); !slices.Equal(got, []string{"place home", "up 755", "end"}) {
			t.Errorf("%s: %q", none, got)
		}
	}
}

// written says what a home became; of content the beginning.
func written(t *testing.T, u *Use, dir string) (all []string) {
	t.Helper()
	var stream bytes.Buffer
	w := filetree.NewWriter(&stream)
	if err := u.WriteHome(t.Context(), dir, "home", w); err != nil {
		t.Fatal(err)
	}
	if _, err := w.End(); err != nil {
		t.Fatal(err)
	}
	r := filetree.NewReader(&stream)
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case filetree.Place:
			all = append(all, "place "+e.Name)
		case filetree.Dir:
			all = append(all, "dir "+e.Name)
		case filetree.Up:
			all = append(all, fmt.Sprintf("up %o", e.Mode))
		case filetree.Symlink:
			all = append(all, "link "+e.Name+" "+e.Target)
		case filetree.End:
			return append(all, "end")
		case filetree.File:
			var text strings.Builder
			for {
				gap, piece, err := r.Content()
				if err != nil {
					t.Fatal(err)
				}
				if gap == 0 && piece == nil {
					break
				}
				text.Write(piece)
			}
			said := text.String()
			if int64(len(said)) != e.Size {
				t.Errorf("%s has %d of %d bytes", e.Name, len(said), e.Size)
			}
			all = append(all, fmt.Sprintf("file %s %o %d %s", e.Name, e.Mode, e.Size, said[:min(len(said), 4)]))
		default:
			t.Fatalf("%+v", e)
		}
	}
}
