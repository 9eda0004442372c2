package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// TestKeyCreateMakesNoUsualState: without --state, a key was once made in a
// directory that no server uses.
func TestKeyCreateMakesNoUsualState(t *testing.T) {
	there, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		named, usual string
		create       bool
		want         string
	}{
		{"", there, true, there},
		{"", none, true, ""},
		{"", none, false, ""},
		{none, there, true, none},
		{none, there, false, ""},
		{there, none, false, there},
	} {
		got, err := stateDir(c.named, c.usual, c.create)
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
