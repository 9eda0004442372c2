package cli

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// TestLivingLimitsNameCreate: exec has no --memory, and its hints once named it.
func TestLivingLimitsNameCreate(t *testing.T) {
	for _, c := range []struct {
		cause sandbox.Cause
		over  bool
		want  string
	}{
		{
			sandbox.Cause{Kind: sandbox.CauseMemory, Limit: 256 << 20, Observed: 256 << 20, Hint: "raise limits.memory_bytes (--memory 512MiB)"},
			true,
			"killed: memory limit 256MiB reached (observed 256MiB); the sandbox ended with it. Hint: pinfold create --memory 512MiB",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseDisk, Limit: 1 << 20, Observed: 1 << 20, Hint: "--disk"},
			false,
			"killed: disk limit 1MiB reached (observed 1MiB). Hint: pinfold create --disk 2MiB",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseWallTime, Limit: 200, Observed: 210},
			false,
			"killed: wall time limit 200ms reached (observed 210ms). Hint: pinfold exec --timeout 400ms",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseMemory, Limit: 1 << 42, Observed: 1 << 42, Hint: "--memory 4TiB"},
			false,
			"killed: memory limit 4TiB reached (observed 4TiB)",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseTTL, Limit: 1000, Evidence: "the sandbox ended: it lived 1000ms"},
			false,
			"killed: the sandbox ended: it lived 1000ms",
		},
		{sandbox.Cause{Kind: sandbox.CauseExited}, false, ""},
	} {
		p := sandbox.Process{Status: sandbox.StatusKilled, Cause: &c.cause}
		if got := (flagWords{}).livingEnding(p, c.over); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		before := c.cause.Hint
		in := withLivingHint(p)
		if in.Cause.Limit > 0 && before != "" && (in.Cause.Hint == before || strings.HasPrefix(in.Cause.Hint, "--")) {
			t.Errorf("%s: hint %q", c.cause.Kind, in.Cause.Hint)
		}
		if c.cause.Hint != before {
			t.Error("the caller's cause was changed")
		}
	}
}
