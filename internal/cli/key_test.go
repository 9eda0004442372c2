//go:build !lean

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// TestKeyCreateMakesNoUsualState: a key was once made in a directory that no
// server uses.
func TestKeyCreateMakesNoUsualState(t *testing.T) {
	there, empty, none := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(filepath.Join(there, "pinfold.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ named, usual, want string }{
		{"", there, there},
		{"", none, ""},
		{none, there, ""},
		{empty, there, ""},
		{there, none, there},
	} {
		got, err := stateDir(c.named, c.usual)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		if err != nil && !strings.Contains(sandbox.AsError(err).Hint, "--state") {
			t.Errorf("%+v: hint %q", c, sandbox.AsError(err).Hint)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("the directory was made")
	}
}
