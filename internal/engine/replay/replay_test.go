package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pinfold/sandbox"
)

func exits(n int) *int { return &n }

func first() *sandbox.Result {
	return &sandbox.Result{
		ID: "run_first", Status: sandbox.StatusSucceeded, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, ExitCode: exits(0),
		Stdout: "a\nb\n", StdoutBytes: 4, Isolation: sandbox.Isolation{Driver: "native", Enforced: []string{"seccomp", "landlock:7"}},
		Artifacts: []sandbox.Artifact{{Path: "a.csv", Size: 1, SHA256: "aa"}, {Path: "b.csv", Size: 1, SHA256: "bb"}},
		Usage:     sandbox.Usage{WallMS: 5}, Results: []sandbox.Rich{{"text/plain": "6"}},
	}
}

// Each thing that a run can end with is compared, and what it took is not.
func TestCompare(t *testing.T) {
	tests := map[string]struct {
		change func(r *sandbox.Result)
		want   []sandbox.Difference // without diffs
	}{
		"what it took": {func(r *sandbox.Result) { r.ID, r.Usage.WallMS, r.Timings.ExecMS = "run_second", 50, 50 }, nil},
		"status": {func(r *sandbox.Result) {
			r.Status, r.Cause, r.ExitCode, r.Signal = sandbox.StatusKilled, sandbox.Cause{Kind: sandbox.CauseMemory, Limit: 5, Observed: 6}, nil, "SIGKILL"
		}, []sandbox.Difference{
			{What: "status", Was: "succeeded", Is: "killed"},
			{What: "cause", Was: "exited", Is: "memory at 5"},
			{What: "exit_code", Was: "0", Is: "none"},
			{What: "signal", Was: "none", Is: "SIGKILL"},
		}},
		"stdout":              {func(r *sandbox.Result) { r.Stdout, r.StdoutBytes = "a\nc\n", 4 }, []sandbox.Difference{{What: "stdout", Was: "4 bytes", Is: "4 bytes", At: 2}}},
		"beyond what is kept": {func(r *sandbox.Result) { r.StdoutBytes = 5 }, []sandbox.Difference{{What: "stdout", Was: "4 bytes", Is: "5 bytes", At: 4}}},
		"stderr":              {func(r *sandbox.Result) { r.Stderr, r.StderrBytes = "x", 1 }, []sandbox.Difference{{What: "stderr", Was: "0 bytes", Is: "1 bytes"}}},
		"values":              {func(r *sandbox.Result) { r.Results = nil }, []sandbox.Difference{{What: "results", Was: "30 bytes", Is: "0 bytes"}}},
		"artifacts": {func(r *sandbox.Result) {
			r.Artifacts = []sandbox.Artifact{{Path: "a.csv", Size: 1, SHA256: "ab"}, {Path: "\x1b[31m", Size: 1, SHA256: "bb"}}
		}, []sandbox.Difference{
			{What: "artifact", Path: `\x1b[31m`, Was: "none", Is: "1 bytes, sha256 bb"},
			{What: "artifact", Path: "a.csv", Was: "1 bytes, sha256 aa", Is: "1 bytes, sha256 ab"},
			{What: "artifact", Path: "b.csv", Was: "1 bytes, sha256 bb", Is: "none"},
		}},
		"kept back": {func(r *sandbox.Result) {
			r.Gate = &sandbox.GateResult{Outcome: sandbox.GateWithhold}
			r.ArtifactsSkipped = []sandbox.SkippedArtifact{{Path: "c", Code: sandbox.CodeWithheld}}
		}, []sandbox.Difference{{What: "gate", Was: "none", Is: "withhold"}, {What: "artifact_skipped", Path: "c", Was: "none", Is: "withheld"}}},
		"compiler": {func(r *sandbox.Result) { r.Compile = &sandbox.Compile{Stderr: "oops\n"} }, []sandbox.Difference{{What: "compile.stderr", Was: "0 bytes", Is: "5 bytes"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			is := first()
			test.change(is)
			r := Compare(Original{Result: first(), Secrets: []string{"key"}}, is, nil)
			for i := range r.Differences {
				r.Differences[i].Diff = ""
			}
			if r.Of != "run_first" || r.Same != (len(test.want) == 0) || !slices.Equal(r.Differences, test.want) || len(r.Environment) != 0 || r.Differences == nil || !slices.Equal(r.Secrets, []string{"key"}) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What both ran on is told apart from what came of it.
func TestEnvironment(t *testing.T) {
	is := first()
	is.Isolation = sandbox.Isolation{Driver: "process", Enforced: []string{"landlock:6", "seccomp"}}
	r := Compare(Original{Result: first(), MadeWith: map[string]string{"template": "a", "pinfold": "1"}}, is, map[string]string{"template": "b", "pinfold": "1", "gate": "g", "packages": "p"})
	want := []sandbox.Difference{
		{What: "template", Was: "a", Is: "b"},
		{What: "gate", Was: "none", Is: "g"},
		{What: "packages", Was: "none", Is: "p"},
		{What: "driver", Was: "native", Is: "process"},
		{What: "isolation", Was: "landlock:7", Is: "landlock:6"},
	}
	if !r.Same || !slices.Equal(r.Environment, want) {
		t.Errorf("%+v", r)
	}
}

// Bytes that no text can tell apart are another output where they are known.
func TestBytesAreCompared(t *testing.T) {
	was, is := first(), first()
	was.Stdout, was.StdoutRaw = "\uFFFD", []byte{0xff}
	is.Stdout, is.StdoutRaw = "\uFFFD", []byte{0xfe}
	r := Compare(Original{Result: was}, is, nil)
	if r.Same || !strings.Contains(r.Differences[0].Diff, `-\xff`) || !strings.Contains(r.Differences[0].Diff, `+\xfe`) {
		t.Errorf("%+v", r)
	}
}

func TestDifferencesAreBounded(t *testing.T) {
	is := first()
	for i := range 5000 {
		is.Artifacts = append(is.Artifacts, sandbox.Artifact{Path: fmt.Sprint(i)})
	}
	if r := Compare(Original{Result: first()}, is, nil); len(r.Differences) != sandbox.MaxDifferences || r.Differences[sandbox.MaxDifferences-1].What != "more" {
		t.Errorf("%d differences", len(r.Differences))
	}
}

func TestDiff(t *testing.T) {
	tests := map[string]struct{ was, is, want string }{
		"one line":    {"a\n", "b\n", "@@ -1,1 +1,1 @@\n-a\n+b\n"},
		"an addition": {"a\nb\n", "a\nx\nb\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n"},
		"in the middle": {
			"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
			"@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
		},
		"two places": {
			"a\n1\n2\n3\n4\n5\n6\n7\n8\n9\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\n8\n9\nB\n",
			"@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -8,4 +8,4 @@\n 7\n 8\n 9\n-b\n+B\n",
		},
		"from nothing": {"", "a", "@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file\n"},
		"a terminal's": {"\x1b[2J\x07\u202e\n", "\xff\r\n", "@@ -1,1 +1,1 @@\n-\\x1b[2J\\a\\u202e\n+\\xff\\r\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := diff([]byte(test.was), []byte(test.is)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// Whatever two texts are, what is removed and added leads from the one to the other.
func TestEditsLeadFromOneToTheOther(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() []byte {
		var b bytes.Buffer
		for range random.IntN(30) {
			fmt.Fprintf(&b, "%d\n", random.IntN(4))
		}
		return b.Bytes()
	}
	for range 3000 {
		was, is := text(), text()
		var before, after bytes.Buffer
		changed := 0
		for _, o := range edits(lines(was), lines(is), 0) {
			if o.kind != '+' {
				before.Write(o.line)
			}
			if o.kind != '-' {
				after.Write(o.line)
			}
			if o.kind != ' ' {
				changed++
			}
		}
		if !bytes.Equal(before.Bytes(), was) || !bytes.Equal(after.Bytes(), is) || bytes.Equal(was, is) != (changed == 0) {
			t.Fatalf("%q to %q: %q, %q", was, is, before.Bytes(), after.Bytes())
		}
	}
}

// Hostile texts cost little, and what is said of them is bounded and no terminal obeys it.
func TestHostileDiff(t *testing.T) {
	tests := map[string][2][]byte{
		"line feeds":       {bytes.Repeat([]byte("\n"), 16<<20), bytes.Repeat([]byte("\n\r"), 8<<20)},
		"one line":         {bytes.Repeat([]byte("a"), 16<<20), bytes.Repeat([]byte("ab"), 8<<20)},
		"controls":         {bytes.Repeat([]byte("\x1b]0;x\x07\n"), 1<<20), bytes.Repeat([]byte("\u202e\x9b\n"), 1<<20)},
		"nothing alike":    {numbers(0, 100_000), numbers(1_000_000, 100_000)},
		"a late one":       {append(numbers(0, 1_000_000), 'x'), numbers(0, 1_000_000)},
		"every other line": {bytes.Repeat([]byte("a\nb\n"), 1<<20), bytes.Repeat([]byte("a\nc\n"), 1<<20)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			got := diff(test[0], test[1])
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if len(got) > sandbox.MaxDiffBytes || got == "" || strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("%d bytes: %.300q", len(got), got)
			}
		})
	}
}

func numbers(from, n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintln(&b, from+i)
	}
	return b.Bytes()
}
