//go:build linux

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/filetree"
	"pinfold/internal/wire"
)

// restoring makes the files of a tree in the place "home" of a root, and returns its path.
func restoring(t *testing.T, entries ...filetree.Entry) (home string, err error) {
	t.Helper()
	root := t.TempDir()
	home = filepath.Join(root, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	var stream bytes.Buffer
	w := filetree.NewWriter(&stream)
	entries = append(append([]filetree.Entry{{Kind: filetree.Place, Name: "home"}}, entries...), filetree.Entry{Kind: filetree.Up, Mode: 0o700})
	for _, e := range entries {
		if err := w.Entry(e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == filetree.File {
			if err := w.Data([]byte(e.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.End(); err != nil {
		t.Fatal(err)
	}
	r := newRestorer(&agent{process: &process{root: fd}}, &channel{id: 3}, []wire.RestorePlace{{Name: "home", Path: "/home"}}, &stream)
	defer r.close()
	return home, r.all()
}

// fileEntry is a file whose content is its name.
func fileEntry(name string, number uint64) filetree.Entry {
	return filetree.Entry{Kind: filetree.File, Name: name, Mode: 0o600, Size: int64(len(name)), Number: number}
}

// No file of a tree takes the place of one that waits for its other names: what those are
// called meanwhile a guest cannot guess.
func TestRestoreIsNotGuessed(t *testing.T) {
	guess, first := fileEntry(".pinfold-restore-3-1", 0), fileEntry("a", 1)
	other := filetree.Entry{Kind: filetree.Link, Name: "b", Number: 1, Last: true}
	for what, entries := range map[string][]filetree.Entry{"before": {guess, first, other}, "meanwhile": {first, guess, other}, "after": {first, other, guess}} {
		home, err := restoring(t, entries...)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		list, err := os.ReadDir(home)
		if err != nil || len(list) != 3 {
			t.Errorf("%s: %v, %v", what, list, err)
		}
		for name, want := range map[string]string{"a": "a", "b": "a", guess.Name: guess.Name} {
			if text, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(text) != want {
				t.Errorf("%s: %s is %q, %v", what, name, text, err)
			}
		}
	}
}

// No link of a tree leads what follows it anywhere else.
func TestRestoreFollowsNoLink(t *testing.T) {
	outside := t.TempDir()
	link := filetree.Entry{Kind: filetree.Symlink, Name: "d", Target: outside}
	up := filetree.Entry{Kind: filetree.Up, Mode: 0o777}
	home, err := restoring(t, link, filetree.Entry{Kind: filetree.Dir, Name: "d"}, fileEntry("x", 0), up)
	if err == nil {
		t.Error("a directory in the place of a link is taken")
	}
	if says, err := os.Readlink(filepath.Join(home, "d")); err != nil || says != outside {
		t.Errorf("control: %q, %v", says, err)
	}
	if _, err := restoring(t, link, fileEntry("d", 0)); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("outside are %v, %v", list, err)
	}
}
