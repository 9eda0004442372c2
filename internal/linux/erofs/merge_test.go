//go:build linux

package erofs

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pinfold/internal/linux/whiteout"
)

// randomLayer fills a directory with names of which other layers have some, too.
func randomLayer(t *testing.T, r *rand.Rand, dir string, depth int) {
	t.Helper()
	for name := range strings.SplitSeq("a b c d e f g", " ") {
		p := filepath.Join(dir, name)
		var err error
		switch kind := r.IntN(9); {
		case kind < 3 && depth < 4:
			if err = os.Mkdir(p, fs.FileMode(0o700|r.IntN(0o100))); err == nil {
				randomLayer(t, r, p, depth+1)
			}
		case kind == 3:
			err = os.Symlink(fmt.Sprint("to", r.IntN(9)), p)
		case kind == 4:
			err = withDir(dir, func(fd int) error { return whiteout.Make(fd, name) })
		case kind == 5:
			if err = os.Mkdir(p, 0o755); err == nil {
				randomLayer(t, r, p, depth+1)
				err = withDir(p, whiteout.SetOpaque)
			}
		case kind < 8:
			err = os.WriteFile(p, []byte(dir+name), fs.FileMode(0o600|r.IntN(0o100)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func withDir(dir string, do func(fd int) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}

// within says what an image holds below a directory, in look's words.
func within(t *testing.T, i *Image, n *node, at string, found map[string]string) map[string]string {
	t.Helper()
	mode := fs.FileMode(n.mode & 0o777)
	text := func(kind fs.FileMode) string { return fmt.Sprint(mode|kind, n.mtime.UnixNano()) }
	switch n.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		found[at] = text(fs.ModeDir)
		for name, c := range n.children {
			within(t, i, c, at+"/"+name, found)
		}
	case unix.S_IFLNK:
		found[at] = text(fs.ModeSymlink) + n.target
	case unix.S_IFREG:
		content := make([]byte, n.size)
		if _, err := i.ReadAt(content, int64(n.block)*blockSize); err != nil {
			t.Fatal(err)
		}
		found[at] = fmt.Sprintf("%s %d %x", text(0), n.size, content)
	default:
		found[at] = fmt.Sprintf("%o", n.mode)
	}
	return found
}

// What is shown of layers is what the kernel's own overlay of them shows.
func TestMergeIsTheOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts an overlay")
	}
	marks := 0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		dir, at := t.TempDir(), t.TempDir()
		layers := make([]string, 2+r.IntN(4))
		for i := range layers {
			layers[i] = filepath.Join(dir, fmt.Sprint(i))
			if err := os.Mkdir(layers[i], 0o755); err != nil {
				t.Fatal(err)
			}
			randomLayer(t, r, layers[i], 0)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // after a failure
		if err := unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(layers, ":")+",userxattr"); err != nil {
			t.Fatal(err)
		}
		want := look(t, at)
		if err := unix.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
		b := New()
		if err := b.Merge(t.Context(), "/image", layers); err != nil {
			t.Fatal(err)
		}
		n := b.root.children["image"]
		i, err := b.Image()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, within(t, i, n, "", map[string]string{})); d != "" {
			t.Fatalf("seed %d (-overlay +image):\n%.3000s", seed, d)
		}
		alone := map[string]string{}
		for i := len(layers) - 1; i >= 0; i-- { // as if nothing hid anything
			b := New()
			if err := b.Tree(t.Context(), "/image", layers[i]); err != nil {
				t.Fatal(err)
			}
			i, err := b.Image()
			if err != nil {
				t.Fatal(err)
			}
			within(t, i, b.root.children["image"], "", alone)
		}
		if cmp.Diff(want, alone) != "" {
			marks++
		}
	}
	if marks < 6 {
		t.Errorf("control: in %d of 8 something is hidden", marks)
	}
}

// What is below a root that hides all is not looked at, and a layer that cannot be looked
// at is no empty one.
func TestMergeEnds(t *testing.T) {
	top, low := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(low, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := withDir(top, whiteout.SetOpaque); err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
			t.Fatalf("no marks in %s: %v; set TMPDIR to a file system that has them", top, err)
		}
		t.Skipf("no marks in %s: %v", top, err)
	}
	b := New()
	if err := b.Merge(t.Context(), "/", []string{top, low}); err != nil || len(b.root.children) != 0 {
		t.Errorf("%v, %v", b.root.children, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"a layer that is gone": New().Merge(t.Context(), "/", []string{low, low + "/nothing"}),
		"a file for a layer":   New().Merge(t.Context(), "/", []string{low, low + "/secret"}),
		"a context's end":      New().Merge(ended, "/", []string{low}),
	} {
		if err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
