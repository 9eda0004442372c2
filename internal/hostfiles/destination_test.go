package hostfiles

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDestination(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, err := range []error{
		os.WriteFile("file", nil, 0o640), os.Symlink("file", "link"), os.Symlink("nowhere", "broken"),
		os.Mkdir("dir", 0o755), syscall.Mkfifo("pipe", 0o600), os.Symlink("/dev/null", "device"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]Destination{
		"new": {Path: "new"}, "file": {Path: "file", Mode: 0o640}, "link": {Path: "file", Mode: 0o640},
		filepath.Join("none", "new"): {Path: filepath.Join("none", "new")},
	} {
		if got, err := OpenDestination(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	got, err := OpenDestination("device")
	if err != nil || got.Special == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := got.Special.WriteString("x"); err != nil {
		t.Error(err)
	}
	if err := got.Special.Close(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"broken": "leads to nothing", "dir": "is a directory", "pipe": "nobody reads"} {
		if _, err := OpenDestination(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
