package guest_test

import (
	"os"
	"path/filepath"
	"testing"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func TestPut(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	files := []wire.PutFile{
		{Path: "a.txt", Mode: 0o644, Content: []byte("hello")},
		{Path: "deep/er/b.sh", Mode: 0o755, Content: []byte("\x00\xff")},
		{Path: "empty", Mode: 0o600},
	}
	if failed, err := l.Put(deadline(t), files); err != nil || failed != -1 {
		t.Fatal(failed, err)
	}
	for _, f := range files {
		name := filepath.Join(l.home, f.Path)
		b, err := os.ReadFile(name)
		if err != nil || string(b) != string(f.Content) {
			t.Errorf("%s: %q, %v", f.Path, b, err)
		}
		if info, err := os.Stat(name); err != nil || uint32(info.Mode().Perm()) != f.Mode {
			t.Errorf("%s: %v, %v", f.Path, info.Mode(), err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(l.home, "link")); err != nil {
		t.Fatal(err)
	}
	failed, err := l.Put(deadline(t), []wire.PutFile{{Path: "c", Mode: 0o644}, {Path: "link", Mode: 0o644, Content: []byte("x")}, {Path: "d", Mode: 0o644}})
	if failed != 1 || code(err) != sandbox.CodeNotRegularFile {
		t.Fatalf("through a link: %d, %v", failed, err)
	}
	if failed, err := l.Put(deadline(t), []wire.PutFile{{Path: "big", Content: make([]byte, wire.MaxPut+1)}}); failed != 0 || code(err) != sandbox.CodeTooLarge {
		t.Fatalf("too much: %d, %v", failed, err)
	}
	if failed, err := l.Put(deadline(t), nil); failed != -1 || err != nil {
		t.Fatalf("nothing: %d, %v", failed, err)
	}
}
