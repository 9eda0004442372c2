package serve

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A server that died between storing the first key and naming its file is
// followed by one that names it; one that died before leaves a key that opens
// nothing, and is followed by one with another.
func TestFirstKeyOutlivesACrash(t *testing.T) {
	c := configure(t)
	path, pending := filepath.Join(c.State, firstKeyFile), filepath.Join(c.State, pendingKeyFile)
	life := func() string {
		t.Helper()
		r := start(t, c, Options{})
		if status, body := r.ask("GET", "/v1/whoami", ""); status != 200 {
			t.Errorf("the key in the file: %d %s", status, body)
		}
		r.signals <- syscall.SIGTERM
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(pending); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", pendingKeyFile, err)
		}
		return r.key
	}
	if err := os.Mkdir(c.State, 0o700); err != nil {
		t.Fatal(err)
	}
	stale := "pfk_aaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
	if err := os.WriteFile(pending, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	first := life()
	if err := os.Rename(path, pending); err != nil {
		t.Fatal(err)
	}
	if again := life(); again != first {
		t.Errorf("%s became %s", first, again)
	}
	if err := os.WriteFile(pending, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := life(); again != first {
		t.Errorf("%s became %s", first, again)
	}
}
