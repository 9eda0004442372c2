//go:build linux

package erofs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostTree makes a directory of many kinds of files.
func hostTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	random := rand.NewChaCha8([32]byte{1})
	write := func(name string, size int) {
		b := make([]byte, size)
		_, _ = random.Read(b)
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{0, 1, 4095, 4096, 4097, 300_001} {
		write(fmt.Sprintf("sizes/%d", size), size)
	}
	for i := range 700 { // more than one block of names
		write(fmt.Sprintf("many/%0*d", 1+i%200, i), i%3)
	}
	for i := range 120 { // directories whose ends lie anywhere in a block
		for j := range i {
			write(fmt.Sprintf("dirs/%d/%d-%s", i, j, strings.Repeat("x", 40)), 0)
		}
	}
	write("!before-the-dots", 3)
	write(strings.Repeat("n", 255), 2)
	for name, target := range map[string]string{"link": "sizes/1", "long-link": strings.Repeat("/abc", 1000), "dangling": "nowhere", "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "sizes/1"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	return dir
}

func imageOf(t *testing.T, dir string) *Image {
	t.Helper()
	b := New()
	if err := errors.Join(
		b.Tree(t.Context(), "/shown/here", dir), b.Dir("/tmp", 0o1777, 0, 0), b.Dir("/home/user", 0o700, 1000, 1000),
		b.File("/etc/passwd", 0o644, []byte("root:x:0:0\n")), b.File("/etc/empty", 0o600, nil), b.Link("/bin", "usr/bin"),
		b.Tree(t.Context(), "/alone/4097", filepath.Join(dir, "sizes/4097")),
	); err != nil {
		t.Fatal(err)
	}
	i, err := b.Image()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// look says what a file tree holds.
func look(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // overlays list marks that are in one layer alone
			return nil
		}
		if err != nil {
			return err
		}
		text := fmt.Sprint(info.Mode()&^fs.ModeSetuid, info.ModTime().UnixNano())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[path[len(dir):]] = text + target
			return err
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			found[path[len(dir):]] = fmt.Sprintf("%s %d %x", text, info.Size(), b[:min(len(b), 5000)])
			return err
		}
		found[path[len(dir):]] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The kernel reads what was shown, to the byte.
func TestKernelReads(t *testing.T) {
	dir := hostTree(t)
	i := imageOf(t, dir)
	file := filepath.Join(t.TempDir(), "image")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, io.NewSectionReader(i, 0, i.Size())); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if said, err := exec.CommandContext(t.Context(), "mount", "-t", "erofs", "-o", "loop,ro", file, at).CombinedOutput(); err != nil {
		known, _ := os.ReadFile("/proc/filesystems")
		if os.Getuid() == 0 && bytes.Contains(known, []byte("\terofs\n")) {
			t.Fatalf("%v: %s", err, said)
		}
		t.Skipf("this kernel mounts no EROFS for us: %v: %s", err, said)
	}
	t.Cleanup(func() {
		if err := exec.CommandContext(context.Background(), "umount", at).Run(); err != nil {
			t.Error(err)
		}
	})
	if d := cmp.Diff(look(t, dir), look(t, filepath.Join(at, "shown/here"))); d != "" {
		t.Errorf("(-host +image):\n%.3000s", d)
	}
	all := look(t, at)
	if all["/tmp"] == "" || !strings.HasPrefix(all["/tmp"], "dtrwxrwxrwx") || !strings.HasSuffix(all["/bin"], "usr/bin") || all["/etc/empty"] == "" {
		t.Errorf("%q %q %q", all["/tmp"], all["/bin"], all["/etc/empty"])
	}
	for name, want := range map[string]string{"etc/passwd": "root:x:0:0\n"} {
		if got, err := os.ReadFile(filepath.Join(at, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if a, b := readFile(t, filepath.Join(at, "alone/4097")), readFile(t, filepath.Join(dir, "sizes/4097")); !bytes.Equal(a, b) {
		t.Error("a file that is shown alone is another")
	}
	st, err := os.Stat(filepath.Join(at, "shown/here/sizes/1"))
	if err != nil || st.Mode()&os.ModeSetuid != 0 {
		t.Errorf("set-user-id is shown: %v, %v", st.Mode(), err)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Who reads a file that has changed gets nothing of it.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for what, change := range map[string]func() error{
		"replaced by another": func() error {
			return errors.Join(os.WriteFile(file+"2", []byte("other"), 0o600), os.Rename(file+"2", file))
		},
		"written to": func() error { return os.WriteFile(file, []byte("other"), 0o600) },
		"cut":        func() error { return os.Truncate(file, 1) },
		"gone":       func() error { return os.Remove(file) },
		"a link to it": func() error {
			return errors.Join(os.Rename(file, file+"3"), os.Symlink(file+"3", file))
		},
	} {
		_ = os.Remove(file)
		if err := os.WriteFile(file, []byte("first"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := New()
		if err := b.Tree(t.Context(), "/x", dir); err != nil {
			t.Fatal(err)
		}
		i, err := b.Image()
		if err != nil {
			t.Fatal(err)
		}
		var at int64 // where it stands
		for _, e := range i.extents {
			if e.name == "f" {
				at = e.start
			}
		}
		got := make([]byte, 5)
		if _, err := i.ReadAt(got, at); err != nil || string(got) != "first" {
			t.Fatalf("control: %q, %v", got, err)
		}
		clear(got)
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := i.ReadAt(got, at); !errors.Is(err, ErrChanged) || string(got) == "other" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

func TestBuilderRefuses(t *testing.T) {
	b := New()
	if err := b.File("/a/b", 0o644, nil); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"twice":            b.File("/a/b", 0o644, nil),
		"below a file":     b.File("/a/b/c", 0o644, nil),
		"a long name":      b.File("/"+strings.Repeat("x", 256), 0o644, nil),
		"a long link":      b.Link("/l", strings.Repeat("x", 5000)),
		"nothing there":    b.Tree(t.Context(), "/n", "/nowhere/at/all"),
		"a context's end":  b.Tree(ended, "/u", "/usr"),
		"another name for": b.Tree(t.Context(), "/other", "/etc/passwd"),
	} {
		if err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestReadBeyond(t *testing.T) {
	i, err := New().Image()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := i.ReadAt(make([]byte, 10), i.Size()-4); n != 4 || err != io.EOF { //nolint:errorlint // io.ReaderAt's own
		t.Errorf("%d, %v", n, err)
	}
	if _, err := i.ReadAt(make([]byte, 10), -1); err == nil {
		t.Error("a negative offset is taken")
	}
}

// Images of the same files are the same, and of others they are not.
func TestSum(t *testing.T) {
	dir := hostTree(t)
	sum := imageOf(t, dir).Sum()
	if again := imageOf(t, dir).Sum(); again != sum || len(sum) != 64 {
		t.Errorf("%s, then %s", sum, again)
	}
	for what, change := range map[string]func() error{
		"a file that was written to": func() error { return os.WriteFile(filepath.Join(dir, "sizes/4097"), make([]byte, 4097), 0o640) },
		"another mode":               func() error { return os.Chmod(filepath.Join(dir, "sizes/4096"), 0o600) },
		"another link": func() error {
			return errors.Join(os.Remove(filepath.Join(dir, "link")), os.Symlink("sizes/2", filepath.Join(dir, "link")))
		},
		"one more": func() error { return os.WriteFile(filepath.Join(dir, "more"), nil, 0o640) },
	} {
		before := imageOf(t, dir).Sum()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if imageOf(t, dir).Sum() == before {
			t.Errorf("%s is the same", what)
		}
	}
}
