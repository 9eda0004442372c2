//go:build linux

package treeread

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/filetree"
)

// A place that is not there, or is none, is left out. One that cannot be opened for a want of
// the host's is not: a snapshot without it would pass for a whole one.
func TestPlaceThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "home"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Symlink("home", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(root) })
	read := func(path string) (filetree.Summary, error) {
		w := filetree.NewWriter(io.Discard)
		err := Read(t.Context(), []Place{{Name: "home", Root: root, Path: path}}, Limits{Bytes: 1, Entries: 1}, w)
		return w.So(), err
	}
	for _, name := range []string{"nothing", "file", "link"} {
		if so, err := read(name); err != nil || so.Left != 1 {
			t.Errorf("%s: %+v, %v", name, so, err)
		}
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(root), Max: was.Max}); err != nil { //nolint:gosec // a descriptor
		t.Fatal(err)
	}
	so, err := read("home")
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("without a descriptor: %+v, %v", so, err)
	}
	if so, err := read("home"); err != nil || so.Left != 0 {
		t.Errorf("control: %+v, %v", so, err)
	}
}
