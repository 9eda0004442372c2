package cli

import (
	"os"
	"path/filepath"
	"testing"

	"pinfold/sandbox"
)

// TestBeside: a value next to its limit has the limit's unit, and never looks
// like a limit that it passed.
func TestBeside(t *testing.T) {
	for _, c := range []struct {
		v, limit int64
		want     string
	}{
		{17096 << 10, 1 << 20, "16.7MiB"},
		{256 << 20, 256 << 20, "256MiB"},
		{256<<20 + 1, 256 << 20, "268435457B"},
		{512 << 20, 256 << 20, "512MiB"},
		{3 << 30, 1 << 30, "3GiB"},
		{2 << 30, 1 << 20, "2048MiB"},
		{2000, 100, "2000B"},
		{1536, 1000, "1.5KiB"},
	} {
		if got := beside(c.v, c.limit, sandbox.UnitBytes); got != c.want {
			t.Errorf("%d beside %d: %s, want %s", c.v, c.limit, got, c.want)
		}
	}
	if got := beside(65, 64, sandbox.UnitCount); got != "65" {
		t.Errorf("a count: %s", got)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.png", "a.png", true},
		{"*.png", "d/a.png", false},
		{"**/*.png", "a.png", true},
		{"**/*.png", "d/e/a.png", true},
		{"d/**", "d/e/f", true},
		{"d/**", "e/f", false},
		{"**", "a", true},
		{"a/**/b/**/c", "a/x/b/c", true},
		{"a/**/b/**/c", "a/x/c", false},
		{"plot.svg", "plot.svg", true},
		{"plot.svg", "plot.svgz", false},
		{"**/**/**/**/**/**/**/**/**/**/x", "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/y", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%s and %s: %v", c.pattern, c.name, got)
		}
	}
}

// TestUnmatched: where the files are not all known, nothing is said about them.
func TestUnmatched(t *testing.T) {
	patterns := []string{"*.png"}
	known := sandbox.Result{Status: sandbox.StatusFailed, Artifacts: []sandbox.Artifact{{Path: "a.svg"}}}
	if got := unmatched(&known, patterns); len(got) != 1 {
		t.Errorf("%v", got)
	}
	for name, r := range map[string]sandbox.Result{
		"killed":       {Status: sandbox.StatusKilled},
		"not compiled": {Status: sandbox.StatusFailed, Cause: sandbox.Cause{Phase: sandbox.PhaseCompile}},
		"too many":     {Status: sandbox.StatusSucceeded, ArtifactsSkipped: []sandbox.SkippedArtifact{{}}},
		"skipped":      {Status: sandbox.StatusSucceeded, ArtifactsSkipped: []sandbox.SkippedArtifact{{Path: "x.png"}}},
	} {
		if got := unmatched(&r, patterns); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"a/b.py": "a/b.py", "": "''", "two words": "'two words'", "$x": "'$x'", "it's": `'it'\''s'`, "*": "'*'", "-v": "-v", "~": "'~'",
	} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

// What could not be destroyed in time is said, beside what became of the program, and
// nothing is said where nothing is left.
func TestReportSaysWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		cleanup *sandbox.Error
		want    string
	}{
		"nothing": {nil, ""},
		"something": {
			&sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "something of it is still on the host: \x1b[2Jprocesses", Hint: "nothing has to be done"},
			"pinfold: something of it is still on the host: \\x1b[2Jprocesses. Hint: nothing has to be done\n",
		},
	} {
		stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		a := &app{Deps: Deps{Stderr: stderr}}
		a.report(&sandbox.Result{Status: sandbox.StatusSucceeded, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, Cleanup: c.cleanup}, reportOptions{})
		_ = stderr.Close()
		if said, err := os.ReadFile(stderr.Name()); err != nil || string(said) != c.want {
			t.Errorf("%s: %q %v, want %q", name, said, err, c.want)
		}
	}
}
