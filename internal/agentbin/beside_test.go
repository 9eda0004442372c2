//go:build !embedagent

package agentbin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestOpenReadsTheFileBesideTheProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if err := os.WriteFile(beside, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(beside) })

	got, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "\x7fELF" {
		t.Fatalf("Open returned %q", got)
	}
}

func TestOpenWithoutAnAgentSaysHowToGetOne(t *testing.T) {
	_, err := Open()
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeResourceUnavailable || e.Hint != "make build" {
		t.Fatalf("Open failed with %+v", e)
	}
}

func TestReadRefusesWhatIsNoExecutable(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	huge := filepath.Join(dir, "huge")
	for path, size := range map[string]int64{empty: 0, huge: maxBytes + 1} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil { // sparse
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{dir: "not a regular file", empty: "0 bytes", huge: "bytes"} {
		if _, err := readFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("readFile(%s) gave %v, want an error with %q", path, err, want)
		}
	}
}
