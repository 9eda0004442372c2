//go:build linux

package whiteout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestMarks(t *testing.T) {
	dir := t.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	fd := int(d.Fd())
	if err := Make(fd, "gone"); err != nil {
		t.Fatal(err)
	}
	if err := Make(fd, "gone"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second whiteout of the name: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{filepath.Join(dir, "gone"): true, filepath.Join(dir, "file"): false, "/dev/null": false} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if Is(info) != want {
			t.Errorf("%s is a whiteout: %v", path, !want)
		}
	}
	for _, want := range []bool{false, true} {
		if got, err := IsOpaque(fd); err != nil || got != want {
			t.Errorf("opaque: %v, %v, want %v", got, err, want)
		}
		if err := SetOpaque(fd); err != nil {
			t.Fatal(err)
		}
	}
}
