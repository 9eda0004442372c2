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
