//go:build linux

package treeread

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/filetree"
	"pinfold/sandbox"
)

// at opens a directory as a root.
func at(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

var wide = Limits{Bytes: 1 << 40, Entries: 1 << 30}

func readAll(t *testing.T, dir string, l Limits, w io.Writer) (filetree.Summary, error) {
	t.Helper()
	files := filetree.NewWriter(w)
	if err := Read(t.Context(), []Place{{Name: "home", Root: at(t, dir), Path: "home"}, {Name: "/tmp", Root: at(t, dir), Path: "tmp"}}, l, files); err != nil {
		return filetree.Summary{}, err
	}
	return files.End()
}

// descend makes so many directories below each other, and removes them in the end.
func descend(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		if err = unix.Mkdirat(fd, "d", 0o700); err == nil {
			var next int
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			fd = next
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range levels {
			up, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			if err != nil {
				t.Error(err)
				return
			}
			_, fd = unix.Unlinkat(up, "d", unix.AT_REMOVEDIR), up
		}
		_ = unix.Close(fd)
	})
}

// A tree of 20,000 levels costs neither descriptors nor stack, and comes out whole.
func TestDeepTrees(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "pinfold-test-") // in memory, as sandboxes' files are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	const levels = 20_000
	descend(t, filepath.Join(dir, "home"), levels)
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	after = before
	after.Cur = 200
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &after); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	s, err := readAll(t, dir, wide, io.Discard)
	if err != nil || s.Dirs != levels || s.Left != 1 { // there is no tmp
		t.Errorf("%+v, %v", s, err)
	}
}

// No name leads out: links are what they say, in place of the place itself too, and what is
// mounted is passed over. Without that the secret would be read: the control follows.
func TestNothingLeadsOut(t *testing.T) {
	dir, secret := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(secret, "token"), []byte("SECRET"), 0o600),
		os.Mkdir(filepath.Join(dir, "home"), 0o700),
		os.Symlink(secret, filepath.Join(dir, "tmp")),
		os.Symlink(secret, filepath.Join(dir, "home", "dir")),
		os.Symlink(filepath.Join(secret, "token"), filepath.Join(dir, "home", "file")),
		unix.Mkfifo(filepath.Join(dir, "home", "pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	s, err := readAll(t, dir, wide, &b)
	if err != nil || s.Symlinks != 2 || s.Files != 0 || s.Dirs != 0 || s.Left != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if bytes.Contains(b.Bytes(), []byte("SECRET")) {
		t.Error("it was read")
	}
	for _, control := range []string{"tmp/token", "home/dir/token", "home/file"} {
		if got, err := os.ReadFile(filepath.Join(dir, control)); string(got) != "SECRET" {
			t.Errorf("control %s: %q, %v", control, got, err)
		}
	}
}

// What is more than the machine may have is refused, and what takes too long ends.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, "home", name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []Limits{{Bytes: 1 << 20, Entries: 10}, {Bytes: 1 << 30, Entries: 2}} {
		if _, err := readAll(t, dir, l, io.Discard); err == nil || sandbox.AsError(err).Code != sandbox.CodeTooLarge {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if s, err := readAll(t, dir, Limits{Bytes: 3 << 20, Entries: 3}, io.Discard); err != nil || s.Files != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if err := Read(ctx, []Place{{Name: "home", Root: at(t, dir), Path: "home"}}, wide, filetree.NewWriter(io.Discard)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("too late: %v", err)
	}
	dead := make(chan struct{})
	close(dead)
	ended := errors.New("ended")
	if err := WhileAlive(t.Context(), dead, ended, func(context.Context) error { return nil }); !errors.Is(err, ended) {
		t.Errorf("of the dead: %v", err)
	}
}
