package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func TestWriteAndRead(t *testing.T) {
	big := bytes.Repeat([]byte("pinfold!"), 400_000)
	eachMode(t, func(t *testing.T, l *live) {
		for _, test := range []struct {
			path    string
			content []byte
			mode    uint32
		}{
			{"a.txt", []byte("hello"), 0o644},
			{"empty", nil, 0o600},
			{"deep/er/and/deeper/file", []byte("x"), 0o755},
			{"deep/er/big", big, 0o640},
			{filepath.Join(l.home, "absolute"), []byte("y"), 0o666},
			{"name with \n and \x1b[31m", []byte("z"), 0o644},
		} {
			for _, size := range []int64{int64(len(test.content)), -1} {
				if err := l.WriteFile(deadline(t), test.path, test.mode, size, bytes.NewReader(test.content)); err != nil {
					t.Fatalf("WriteFile %q: %v", test.path, err)
				}
			}
			var got bytes.Buffer
			n, err := l.ReadFile(deadline(t), test.path, int64(len(test.content)), &got)
			if err != nil || n != int64(len(test.content)) || !bytes.Equal(got.Bytes(), test.content) {
				t.Fatalf("ReadFile %q: %d bytes, %v", test.path, n, err)
			}
			st, err := l.Stat(deadline(t), test.path)
			uid := os.Getuid()
			if l.change {
				uid = sandbox.UID
			}
			want := wire.Stat{Type: "file", Size: n, Mode: test.mode, UID: uid, GID: st.GID, MtimeNS: st.MtimeNS, Inode: st.Inode}
			if err != nil || st.MtimeNS == 0 || st.Inode == 0 {
				t.Fatalf("Stat: %+v, %v", st, err)
			}
			if diff := cmp.Diff(want, st); diff != "" {
				t.Fatalf("stat of %q (-want +got):\n%s", test.path, diff)
			}
		}
		// What the agent made belongs to the user, who can use it.
		if got := l.sh(t, "echo more >> deep/er/and/deeper/file && touch deep/new && rm a.txt && cat deep/er/and/deeper/file", "").Stdout; got != "xmore\n" {
			t.Fatalf("the user cannot use the files: %q", got)
		}
	})
}

// A file that was described is read, or nothing of what has its name by now.
func TestReadOfWhatWasDescribed(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		write := func(name, content string) {
			if err := l.WriteFile(deadline(t), name, 0o644, -1, strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
		write("f", "first one")
		st, err := l.Stat(deadline(t), "f")
		if err != nil {
			t.Fatal(err)
		}
		read := func(length int64) (string, string) {
			var b strings.Builder
			_, err := l.ReadOf(deadline(t), "f", st.Inode, 2, length, &b)
			return b.String(), code(err)
		}
		if got, why := read(5); got != "rst o" || why != "<nil>" {
			t.Errorf("the file itself: %q, %s", got, why)
		}
		if got, why := read(-1); got != "rst one" || why != "<nil>" {
			t.Errorf("all of it: %q, %s", got, why)
		}
		if got, why := read(8); got != "" || why != sandbox.CodeConflict {
			t.Errorf("more than there is: %q, %s", got, why)
		}
		write("other", "the second one")
		if err := l.Move(deadline(t), "other", "f"); err != nil {
			t.Fatal(err)
		}
		if got, why := read(5); got != "" || why != sandbox.CodeConflict {
			t.Errorf("another file of that name: %q, %s", got, why)
		}
		if err := l.Remove(deadline(t), "f"); err != nil {
			t.Fatal(err)
		}
		if got, why := read(5); got != "" || why != sandbox.CodeFileNotFound {
			t.Errorf("no file: %q, %s", got, why)
		}
	})
}

// A file is executed directly after it was written, while others start.
func TestWriteThenExecute(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	failures := make(chan error)
	for i := range 8 {
		go func() {
			failures <- func() error {
				for j := range 10 {
					name := fmt.Sprintf("prog-%d-%d", i, j)
					if err := l.WriteFile(deadline(t), name, 0o755, -1, strings.NewReader("#!/bin/sh\nexit 7\n")); err != nil {
						return err
					}
					p, err := l.Start(deadline(t), guest.Command{Args: []string{"./" + name}, Env: env}, guest.Streams{})
					if err != nil {
						return err
					}
					if e, err := p.Wait(deadline(t)); err != nil || e.Code != 7 {
						return fmt.Errorf("%+v, %w", e, err)
					}
				}
				return nil
			}()
		}()
	}
	for range 8 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

// trap makes the files that a hostile guest would.
func trap(t *testing.T, l *live) (outside string) {
	t.Helper()
	outside = filepath.Join(t.TempDir(), "outside")
	steps := []error{
		os.WriteFile(outside, []byte("secret"), 0o666),
		os.Chmod(outside, 0o666),
		os.Symlink(outside, filepath.Join(l.home, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(l.home, "dirlink")),
		os.Symlink("loop", filepath.Join(l.home, "loop")),
		os.Symlink("/nowhere", filepath.Join(l.home, "dangling")),
		os.Mkdir(filepath.Join(l.home, "dir"), 0o777),
		os.Chmod(filepath.Join(l.home, "dir"), 0o777),
		os.WriteFile(filepath.Join(l.home, "plain"), []byte("12345"), 0o666),
		syscall.Mkfifo(filepath.Join(l.home, "fifo"), 0o666),
		os.Chmod(filepath.Join(l.home, "fifo"), 0o666),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	return outside
}

func TestFileRefusals(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		outside := trap(t, l)
		write := func(p string) error { return l.WriteFile(deadline(t), p, 0o644, 3, strings.NewReader("bad")) }
		read := func(p string) error { _, err := l.ReadFile(deadline(t), p, 4, io.Discard); return err }
		mkdir := func(p string) error { return l.Mkdir(deadline(t), p, 0o755) }
		remove := func(p string) error { return l.Remove(deadline(t), p) }
		stat := func(p string) error { _, err := l.Stat(deadline(t), p); return err }
		for _, test := range []struct {
			name string
			do   func(string) error
			path string
			code string
		}{
			{"write through a link", write, "link", sandbox.CodeNotRegularFile},
			{"write below a link", write, "dirlink/outside", sandbox.CodeNotRegularFile},
			{"write to a dangling link", write, "dangling", sandbox.CodeNotRegularFile},
			{"write to a loop", write, "loop/x", sandbox.CodeNotRegularFile},
			{"write to a pipe", write, "fifo", sandbox.CodeNotRegularFile},
			{"write to a directory", write, "dir", sandbox.CodeNotRegularFile},
			{"write below a file", write, "plain/x", sandbox.CodePathInvalid},
			{"write the root", write, "/", sandbox.CodePathInvalid},
			{"write to proc", write, "/proc/pinfold", sandbox.CodeFileNotFound},
			{"write without a path", write, "", sandbox.CodePathInvalid},
			{"write a NUL", write, "a\x00b", sandbox.CodePathInvalid},
			{"write a long name", write, strings.Repeat("n", 300), sandbox.CodePathInvalid},
			{"read through a link", read, "link", sandbox.CodeNotRegularFile},
			{"read below a link", read, "dirlink/outside", sandbox.CodeNotRegularFile},
			{"read a magic link", read, "/proc/self/exe", sandbox.CodeNotRegularFile},
			{"read a pipe", read, "fifo", sandbox.CodeNotRegularFile},
			{"read a device", read, "/dev/zero", sandbox.CodeNotRegularFile},
			{"read a directory", read, "dir", sandbox.CodeNotRegularFile},
			{"read nothing", read, "missing", sandbox.CodeFileNotFound},
			{"read too much", read, "plain", sandbox.CodeTooLarge},
			{"mkdir below a link", mkdir, "dirlink/x", sandbox.CodeNotRegularFile},
			{"mkdir over a file", mkdir, "plain", sandbox.CodePathInvalid},
			{"remove below a link", remove, "dirlink/outside", sandbox.CodeNotRegularFile},
			{"remove nothing", remove, "missing", sandbox.CodeFileNotFound},
			{"remove the root", remove, "/", sandbox.CodePathInvalid},
			{"stat nothing", stat, "missing", sandbox.CodeFileNotFound},
		} {
			t.Run(test.name, func(t *testing.T) {
				if err := test.do(test.path); code(err) != test.code {
					t.Fatalf("%v (code %s), want code %s", err, code(err), test.code)
				}
			})
		}
		if b, err := os.ReadFile(outside); err != nil || string(b) != "secret" {
			t.Fatalf("the file outside is now %q, %v", b, err)
		}
		for path, want := range map[string]string{"link": "symlink", "dir": "dir", "fifo": "other", "dirlink/outside": "file"} {
			if l.change && path == "dirlink/outside" {
				continue // the same as without
			}
			if st, err := l.Stat(deadline(t), path); err != nil || st.Type != want {
				t.Errorf("stat %s: %+v, %v, want %s", path, st, err, want)
			}
		}
	})
}

func TestWriteSizes(t *testing.T) {
	l := startAgent(t, mode{})
	for _, test := range []struct {
		size    int64
		content string
	}{{5, "four"}, {3, "four"}, {0, "four"}} {
		err := l.WriteFile(deadline(t), "f", 0o644, test.size, strings.NewReader(test.content))
		if code(err) != sandbox.CodeSpecInvalid {
			t.Fatalf("size %d for %d bytes: %v", test.size, len(test.content), err)
		}
	}
	broken := errors.New("disk on fire")
	err := l.WriteFile(deadline(t), "f", 0o644, -1, io.MultiReader(strings.NewReader("x"), failing{broken}))
	if !errors.Is(err, broken) {
		t.Fatalf("a failing reader: %v", err)
	}
	if err := l.WriteFile(deadline(t), "f", 0o644, 2, strings.NewReader("ok")); err != nil {
		t.Fatalf("afterwards: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small tmpfs")
	}
	l := startAgent(t, mode{})
	dir := filepath.Join(l.home, "small")
	if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount("none", dir, "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	err := l.WriteFile(deadline(t), "small/f", 0o644, -1, io.LimitReader(zeros{}, 10<<20))
	if code(err) != sandbox.CodeTooLarge || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("WriteFile: %v", err)
	}
}

func TestReadStopsWithItsWriter(t *testing.T) {
	l := startAgent(t, mode{})
	if err := l.WriteFile(deadline(t), "big", 0o644, 4<<20, io.LimitReader(zeros{}, 4<<20)); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no room")
	if _, err := l.ReadFile(deadline(t), "big", 8<<20, failing{full}); !errors.Is(err, full) {
		t.Fatalf("ReadFile: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := l.ReadFile(ctx, "big", 8<<20, cancelling{cancel})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("ReadFile: %v", err)
	}
	if n, err := l.ReadFile(deadline(t), "big", 8<<20, io.Discard); n != 4<<20 || err != nil {
		t.Fatalf("afterwards: %d, %v", n, err)
	}
}

type cancelling struct{ cancel context.CancelFunc }

func (c cancelling) Write(p []byte) (int, error) { c.cancel(); return len(p), nil }

func TestMkdirAndRemove(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		for range 2 { // the second time it exists
			if err := l.Mkdir(deadline(t), "a/b/c", 0o700); err != nil {
				t.Fatal(err)
			}
		}
		outside := trap(t, l)
		l.sh(t, `mkdir -p a/x/y a/z && touch a/x/1 a/x/y/2 a/b/c/3 && ln -s "`+filepath.Dir(outside)+`" a/x/out && mkdir a/locked && touch a/locked/f && chmod 0 a/locked a/x/y`, "")
		if err := l.Remove(deadline(t), "a"); err != nil {
			t.Fatal(err)
		}
		if err := l.Remove(deadline(t), "dirlink"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(l.home, "a")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("a is still there: %v", err)
		}
		if _, err := os.Stat(outside); err != nil {
			t.Fatalf("a file outside was removed: %v", err)
		}
	})
}

// A tree far deeper than any path can say must be removed without recursion
// and without a descriptor for each level.
func TestRemoveDeepTree(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	const depth = 10_000
	dir, err := unix.Open(l.home, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		err := unix.Mkdirat(dir, "d", 0o755)
		next, openErr := unix.Openat(dir, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(dir)
		if err := errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	_ = unix.Close(dir)
	if err := l.Remove(deadline(t), "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(l.home, "d")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("still there: %v", err)
	}
}

func TestGlob(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	l.sh(t, `mkdir -p out/plots .cache/x empty; touch a.svg b.SVG out/c.svg out/plots/d.svg out/plots/e.txt .cache/x/f.svg
		ln -s a.svg link.svg; ln -s out dirlink; mkfifo pipe.svg; printf 12345 > a.svg; touch "$(printf 'bad\377.svg')" "$(printf 'esc\033.svg')"`, "")
	for _, test := range []struct {
		name     string
		dir      string
		patterns []string
		want     []string
		hidden   int
	}{
		{"star", ".", []string{"*.svg"}, []string{"a.svg"}, 2},
		{"one level", ".", []string{"*/*.svg"}, []string{"out/c.svg"}, 0},
		{"any depth", ".", []string{"**/*.svg"}, []string{".cache/x/f.svg", "a.svg", "out/c.svg", "out/plots/d.svg"}, 2},
		{"everything below", ".", []string{"out/**"}, []string{"out/c.svg", "out/plots/d.svg", "out/plots/e.txt"}, 0},
		{"in the middle", ".", []string{"out/**/e.txt", "**/plots/d.*"}, []string{"out/plots/d.svg", "out/plots/e.txt"}, 0},
		{"literals", ".", []string{"a.svg", "link.svg", "pipe.svg", "out", "missing"}, []string{"a.svg", "link.svg symlink", "out dir", "pipe.svg other"}, 0},
		{"not through links", ".", []string{"dirlink/*.svg"}, nil, 0},
		{"class", ".", []string{"[ab].svg"}, []string{"a.svg"}, 0},
		{"other directory", "out", []string{"*/*"}, []string{"plots/d.svg", "plots/e.txt"}, 0},
		{"nothing", ".", nil, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := l.Glob(deadline(t), test.dir, test.patterns, 100)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range got.Files {
				name := f.Path
				if f.Type != "file" {
					name += " " + f.Type
				}
				if f.Path == "a.svg" && f.Size != 5 {
					t.Errorf("a.svg has size %d", f.Size)
				}
				names = append(names, name)
			}
			if diff := cmp.Diff(test.want, names, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if got.More || got.Unprintable != test.hidden {
				t.Fatalf("more %v, unprintable %d, want %d", got.More, got.Unprintable, test.hidden)
			}
		})
	}
	if got, err := l.Glob(deadline(t), ".", []string{"**/*.svg"}, 3); err != nil || len(got.Files) != 3 || !got.More {
		t.Fatalf("with a limit of 3: %+v, %v", got, err)
	}
	if _, err := l.Glob(deadline(t), "dirlink", []string{"*"}, 3); code(err) != sandbox.CodeNotRegularFile && code(err) != sandbox.CodePathInvalid {
		t.Fatalf("below a link: %v", err)
	}
	if _, err := l.Glob(deadline(t), ".", []string{"[a"}, 3); code(err) != sandbox.CodeSpecInvalid {
		t.Fatalf("a malformed pattern: %v", err)
	}
}

func TestGlobManyFiles(t *testing.T) {
	l := startAgent(t, mode{})
	const n = 5000
	for i := range n {
		if err := os.WriteFile(filepath.Join(l.home, fmt.Sprintf("%s-%d", strings.Repeat("n", 200), i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.Glob(deadline(t), ".", []string{"*"}, wire.MaxFiles)
	if err != nil || len(got.Files) != n || got.More {
		t.Fatalf("%d files, more %v, %v", len(got.Files), got.More, err)
	}
}
