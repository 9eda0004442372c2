package build

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a host's source has for a password reaches neither a command line nor an image.
func TestSourcesWithPasswordsStay(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o755),
		os.WriteFile(filepath.Join(dir, "sources.list"), []byte("deb [arch=amd64] https://me:hunter2@private.example/debian bookworm main\ndeb tor+http://token@private.example bookworm main\ndeb http://deb.example/debian/@x bookworm main # mine\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "sources.list.d", "more.sources"), []byte("Types: deb\nURIs: https://me:hunter2@private.example/security http://deb.example/security\nSuites: bookworm bookworm-updates\nComponents: main\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	got, err := sourcesBelow(dir, "bookworm")
	want := []string{"deb http://deb.example/debian/@x bookworm main", "deb http://deb.example/security bookworm main", "deb http://deb.example/security bookworm-updates main"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}
