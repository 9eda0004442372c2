package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func names(e guest.Entries) string {
	var list []string
	for _, x := range e.Items {
		list = append(list, x.Path+":"+x.Type)
	}
	return strings.Join(list, " ")
}

func TestList(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		trap(t, l)
		l.sh(t, `mkdir -p dir/sub/deep && echo 123 >dir/sub/file && chmod 640 dir/sub/file && touch "$(printf 'bad\033name')"`, "")
		for _, test := range []struct {
			dir          string
			depth, limit int
			want         string
		}{
			{".", 1, 100, "dangling:symlink dir:dir dirlink:symlink fifo:other link:symlink loop:symlink plain:file"},
			{"dir", 1, 100, "sub:dir"},
			{"dir", 2, 100, "sub:dir sub/deep:dir sub/file:file"},
			{l.home + "/dir", wire.MaxDepth + 5, 1 << 30, "sub:dir sub/deep:dir sub/file:file"},
			{"dir/sub/deep", 3, 10, ""},
		} {
			got, err := l.List(deadline(t), test.dir, test.depth, test.limit)
			if err != nil || names(got) != test.want || got.More {
				t.Errorf("%s to depth %d: %q, %v, want %q", test.dir, test.depth, names(got), err, test.want)
			}
			if test.dir == "." && got.Unprintable != 1 {
				t.Errorf("%d unprintable names, want 1", got.Unprintable)
			}
		}
		got, err := l.List(deadline(t), "dir/sub", 1, 2)
		if err != nil || len(got.Items) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		if f := got.Items[1]; f.Size != 4 || f.Mode != 0o640 || f.MtimeNS == 0 {
			t.Errorf("%+v", f)
		}
		links, err := l.List(deadline(t), ".", 1, 100)
		if err != nil || links.Items[0].Target != "/nowhere" {
			t.Errorf("%+v, %v", links.Items[0], err)
		}
		if st, err := l.Stat(deadline(t), "dangling"); err != nil || st.Target != "/nowhere" {
			t.Errorf("%+v, %v", st, err)
		}
		for dir, want := range map[string]string{
			"dirlink": sandbox.CodeNotRegularFile, "missing": sandbox.CodeFileNotFound, "plain": sandbox.CodePathInvalid, "": sandbox.CodePathInvalid,
		} {
			if _, err := l.List(deadline(t), dir, 1, 10); code(err) != want {
				t.Errorf("List %q: %v, want %s", dir, err, want)
			}
		}
	})
}

// Long names and targets full of what JSON has to escape still fit into
// frames, and a limit is kept to.
func TestListMany(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	for i := range 300 {
		name := filepath.Join(l.home, fmt.Sprintf("%03d-%s", i, strings.Repeat("\"", 250)))
		if err := os.Symlink(strings.Repeat("\x01", 4000), name); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.List(deadline(t), ".", 1, 1000)
	if err != nil || len(got.Items) != 300 || got.More || len(got.Items[7].Target) != 4000 {
		t.Fatalf("%d entries, %v", len(got.Items), err)
	}
	got, err = l.List(deadline(t), ".", 1, 299)
	if err != nil || len(got.Items) != 299 || !got.More {
		t.Fatalf("%d entries, more %v, %v", len(got.Items), got.More, err)
	}
}

// Of more entries than are asked for the first by path are listed, in whatever
// order the directory has them and however many directories are in between.
func TestListGivesTheFirst(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	var all []string
	for _, dir := range []string{"m", "m-1", "m/b", "m/b-1", "m/b/c", "z"} { // "-" stands before "/"
		if err := os.MkdirAll(filepath.Join(l.home, "d", dir), 0o755); err != nil {
			t.Fatal(err)
		}
		all = append(all, dir)
		for i := range 40 {
			name := fmt.Sprintf("%s/%02d", dir, i*27%40)
			if err := os.WriteFile(filepath.Join(l.home, "d", name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			all = append(all, name)
		}
	}
	slices.Sort(all)
	for _, depth := range []int{1, 2, 3, 4} {
		var want []string
		for _, name := range all {
			if strings.Count(name, "/") < depth {
				want = append(want, name)
			}
		}
		for _, limit := range []int{0, 1, 2, 7, 45, 60, 130, 160, 245, 246, 247} {
			got, err := l.List(deadline(t), "d", depth, limit)
			if err != nil || got.More != (len(want) > limit) {
				t.Fatalf("%d of %d: more %v, %v", limit, len(want), got.More, err)
			}
			var paths []string
			for _, x := range got.Items {
				paths = append(paths, x.Path)
			}
			if !slices.Equal(paths, want[:min(limit, len(want))]) {
				t.Fatalf("to depth %d, %d of %d: %v", depth, limit, len(want), paths)
			}
		}
	}
}

func TestMove(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		outside := trap(t, l)
		l.sh(t, "mkdir -p a/b empty && echo x >a/b/file && echo old >other", "")
		for _, test := range []struct{ from, to, code string }{
			{"a/b/file", "new/place/file", ""},
			{"new/place/file", "other", ""}, // replaces a file
			{"a", "moved", ""},              // a directory
			{"link", "link2", ""},           // the link itself
			{"missing", "x", sandbox.CodeFileNotFound},
			{"moved", "moved/b/in", sandbox.CodePathInvalid},
			{"other", "empty", sandbox.CodeNotRegularFile},
			{"moved", "empty", sandbox.CodeNotRegularFile},
			{"moved", "other", sandbox.CodePathInvalid},
			{"other", "link2", sandbox.CodeNotRegularFile},
			{"other", "fifo", sandbox.CodeNotRegularFile},
			{"other", "dirlink/outside", sandbox.CodeNotRegularFile},
			{"dirlink/outside", "got", sandbox.CodeNotRegularFile},
			{"other", "plain/x", sandbox.CodePathInvalid},
			{"other", "/proc/x", sandbox.CodeFileNotFound},
			{"/", "x", sandbox.CodePathInvalid},
			{"other", "", sandbox.CodePathInvalid},
		} {
			err := l.Move(deadline(t), test.from, test.to)
			if got := code(err); err != nil && got != test.code || err == nil && test.code != "" {
				t.Errorf("%s to %s: %v, want code %q", test.from, test.to, err, test.code)
			}
		}
		if got := l.sh(t, "cat other; ls -d moved/b; ls a", "").Stdout; got != "x\nmoved/b\n" {
			t.Errorf("afterwards: %q", got)
		}
		if b, err := os.ReadFile(outside); err != nil || string(b) != "secret" {
			t.Errorf("the file outside is now %q, %v", b, err)
		}
	})
}

// Between two file systems a file is copied, with its mode, and nothing else
// is left.
func TestMoveBetweenFileSystems(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		far, err := os.MkdirTemp("/dev/shm", "pinfold-far-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(far) })
		if err := os.Chmod(far, 0o777); err != nil {
			t.Fatal(err)
		}
		content := bytes.Repeat([]byte("far away"), 400_000)
		if err := l.WriteFile(deadline(t), "file", 0o640, -1, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if err := l.Move(deadline(t), "file", far+"/sub/file"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(far + "/sub/file")
		if err != nil || !bytes.Equal(b, content) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		list, err := os.ReadDir(far + "/sub")
		if err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		if st, err := l.Stat(deadline(t), far+"/sub/file"); err != nil || st.Mode != 0o640 {
			t.Errorf("%+v, %v", st, err)
		}
		if _, err := l.Stat(deadline(t), "file"); code(err) != sandbox.CodeFileNotFound {
			t.Errorf("the old one: %v", err)
		}
		l.sh(t, "mkdir dir", "")
		if err := l.Move(deadline(t), "dir", far+"/dir"); code(err) != sandbox.CodePathInvalid {
			t.Errorf("a directory: %v", err)
		}
	})
}

func TestReadRange(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	if err := l.WriteFile(deadline(t), "f", 0o644, -1, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	size := int64(len(content))
	for _, test := range []struct{ offset, length, from, to int64 }{
		{0, -1, 0, size},
		{0, size, 0, size},
		{0, size + 1, 0, size},
		{0, 0, 0, 0},
		{5, 10, 5, 15},
		{size - 3, -1, size - 3, size},
		{size - 3, 100, size - 3, size},
		{size, 10, 0, 0},
		{size + 100, -1, 0, 0},
		{70_000, 700_000, 70_000, 770_000},
		{1 << 62, 10, 0, 0},
	} {
		var got bytes.Buffer
		n, err := l.ReadRange(deadline(t), "f", test.offset, test.length, &got)
		if err != nil || n != test.to-test.from || !bytes.Equal(got.Bytes(), content[test.from:test.to]) {
			t.Errorf("%d bytes from %d: %d came, %v", test.length, test.offset, n, err)
		}
	}
	for _, r := range [][2]int64{{-1, 5}, {0, -2}} {
		if _, err := l.ReadRange(deadline(t), "f", r[0], r[1], io.Discard); code(err) != sandbox.CodeSpecInvalid {
			t.Errorf("range %v: %v", r, err)
		}
	}
	if _, err := l.ReadRange(deadline(t), "missing", 0, -1, io.Discard); code(err) != sandbox.CodeFileNotFound {
		t.Errorf("missing: %v", err)
	}
	full := errors.New("full")
	if _, err := l.ReadRange(deadline(t), "f", 0, -1, broke{full}); !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type broke struct{ err error }

func (b broke) Write([]byte) (int, error) { return 0, b.err }

// Readers that take nothing hold up nobody else.
func TestStuckReadersStarveNobody(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	if err := l.WriteFile(deadline(t), "big", 0o644, 4<<20, io.LimitReader(zeros{}, 4<<20)); err != nil {
		t.Fatal(err)
	}
	stuck := &blocked{release: make(chan struct{})}
	ended := make(chan error)
	for range 8 {
		go func() { _, err := l.ReadRange(deadline(t), "big", 0, -1, stuck); ended <- err }()
	}
	for i := range 20 {
		if err := l.WriteFile(deadline(t), fmt.Sprintf("f%d", i), 0o644, 1<<20, io.LimitReader(zeros{}, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.sh(t, "echo alive", "").Stdout; got != "alive\n" {
		t.Errorf("%q", got)
	}
	close(stuck.release)
	for range 8 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
