package cli

import (
	"testing"

	"pinfold/sandbox"
)

func TestExitStatus(t *testing.T) {
	code := func(n int) *int { return &n }
	killed := func(k sandbox.CauseKind) sandbox.Result {
		return sandbox.Result{Status: sandbox.StatusKilled, Cause: sandbox.Cause{Kind: k}}
	}
	for name, c := range map[string]struct {
		r    sandbox.Result
		want int
	}{
		"success":     {sandbox.Result{Status: sandbox.StatusSucceeded, ExitCode: code(0)}, 0},
		"own status":  {sandbox.Result{Status: sandbox.StatusFailed, ExitCode: code(42)}, 42},
		"own 124":     {sandbox.Result{Status: sandbox.StatusFailed, ExitCode: code(124)}, 124},
		"own signal":  {sandbox.Result{Status: sandbox.StatusFailed, Signal: "SIGABRT"}, 134},
		"real time":   {sandbox.Result{Status: sandbox.StatusFailed, Signal: "SIGRTMIN+3"}, 128 + 37},
		"odd signal":  {sandbox.Result{Status: sandbox.StatusFailed, Signal: "SIGWHAT"}, 128},
		"wall":        {killed(sandbox.CauseWallTime), 124},
		"cpu":         {killed(sandbox.CauseCPUTime), 124},
		"memory":      {killed(sandbox.CauseMemory), 137},
		"output":      {killed(sandbox.CauseOutput), 137},
		"syscall":     {sandbox.Result{Status: sandbox.StatusFailed, Signal: "SIGSYS", Cause: sandbox.Cause{Kind: sandbox.CauseSyscall}}, 159},
		"cancelled":   {killed(sandbox.CauseCancelled), 130},
		"lost":        {sandbox.Result{Status: sandbox.StatusError, Cause: sandbox.Cause{Kind: sandbox.CauseLost}}, 125},
		"failed bare": {sandbox.Result{Status: sandbox.StatusFailed}, 1},
		"compile error": {sandbox.Result{
			Status: sandbox.StatusFailed, Cause: sandbox.Cause{Kind: sandbox.CauseExited, Phase: sandbox.PhaseCompile},
			Compile: &sandbox.Compile{ExitCode: code(2)},
		}, 2},
	} {
		if got := exitStatus(&c.r); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestRoundUp: the limit that a hint proposes is at least twice the old one,
// is accepted, and reads back as it was written.
func TestRoundUp(t *testing.T) {
	for _, info := range sandbox.LimitTable() {
		for _, limit := range []int64{info.Min, info.Min + 1, 12345678 % info.Max, info.Max / 2, info.Max - 1} {
			if info.Check(limit) != nil {
				continue
			}
			proposed := min(roundUp(limit, info), info.Max)
			var l sandbox.Limits
			v := limitValue{info, &l}
			if err := v.Set(sandbox.FormatQuantity(proposed, info.Unit)); err != nil {
				t.Errorf("%s: %d proposes %d: %v", info.Flag, limit, proposed, err)
				continue
			}
			if l.Get(info.Field) <= limit {
				t.Errorf("%s: %d proposes %d, which is no more", info.Flag, limit, l.Get(info.Field))
			}
		}
	}
}
