package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func replayed(r sandbox.Replay) *sandbox.Result {
	r.Of, r.Same = "run_first", len(r.Differences) == 0
	return &sandbox.Result{ID: "run_second", Replay: &r}
}

// What a replay says is said in the order of what it means, and the exit status tells
// whether something differs.
func TestReplayText(t *testing.T) {
	tests := map[string]struct {
		r      *sandbox.Result
		status int
		want   string
	}{
		"same": {replayed(sandbox.Replay{Secrets: []string{"a", "b"}}), 0, "run_first, run again as run_second: came out the same\nsecrets had the values of today: a, b\n"},
		"differs": {replayed(sandbox.Replay{
			Environment: []sandbox.Difference{{What: "template", Was: "1", Is: "2"}},
			Differences: []sandbox.Difference{{What: "stdout", Was: "2 bytes", Is: "3 bytes", At: 1, Diff: "@@ -1,1 +1,1 @@\n-a\n+b\n"}},
		}), exitDiffers, "run_first, run again as run_second: differs\nno longer the same, so that a difference means little:\n  template: was 1, is 2\n" +
			"  stdout: was 2 bytes, is 3 bytes, from byte 1 on\n    @@ -1,1 +1,1 @@\n    -a\n    +b\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			a := &app{Deps: Deps{Stdout: out}}
			err = a.showReplay(test.r, false)
			if got, _ := os.ReadFile(out.Name()); err != nil || a.exit != test.status || string(got) != test.want {
				t.Errorf("%v, status %d\n%s", err, a.exit, got)
			}
		})
	}
}

// A server that sends what terminals obey has it shown as escapes.
func TestReplayTextIsHarmless(t *testing.T) {
	bad := "\x1b[2J\u202e\r"
	text := replayText(replayed(sandbox.Replay{Secrets: []string{bad}, Differences: []sandbox.Difference{{What: bad, Path: bad, Was: bad, Is: bad, Diff: bad + "\n" + bad}}}))
	if strings.ContainsAny(text, "\x1b\r\u202e") {
		t.Errorf("%q", text)
	}
}
