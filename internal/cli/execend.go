package cli

import (
	"context"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// reportProcess says why the command ended, unless it simply exited, and makes
// its status ours.
func (a *app) reportProcess(ctx context.Context, box *client.Sandbox, p sandbox.Process) {
	a.reportEnding(ctx, box, p, "")
	if p.Gate != nil {
		a.outcomes(p.Gate)
	}
	if p.PipesHeld {
		a.say("a process that outlived the command still held its output")
	}
}

// reportEnding is the part of it for a terminal that may still be raw: its lines end
// with a carriage return, too.
func (a *app) reportEnding(ctx context.Context, box *client.Sandbox, p sandbox.Process, lineEnd string) {
	a.exit = processStatus(p)
	if line := a.speech.livingEnding(p, tookSandbox(ctx, box, p)); line != "" {
		a.say("%s%s", line, lineEnd)
	}
}

// asResult is a process in the form in which the end of a program is said.
func asResult(p sandbox.Process) *sandbox.Result {
	r := &sandbox.Result{Status: p.Status, ExitCode: p.ExitCode, Signal: p.Signal, TimedOut: p.TimedOut, Gate: p.Gate}
	switch {
	case p.Cause != nil:
		r.Cause = *p.Cause
	case p.Signal != "":
		r.Cause.Kind = sandbox.CauseSignaled
	default:
		r.Cause.Kind = sandbox.CauseExited
	}
	return r
}

func processStatus(p sandbox.Process) int { return exitStatus(asResult(p)) }

// livingEnding is the line that says why a process of a living sandbox ended,
// "" when it exited. over says that the sandbox ended with it.
func (s flagWords) livingEnding(p sandbox.Process, over bool) string {
	r := s.result(asResult(p))
	info, ok := limitOf(r.Cause.Kind)
	if !ok {
		return ending(r)
	}
	with := ""
	if over {
		with = "; the sandbox ended with it"
	}
	return sandbox.SafeText(string(r.Status), 20) + ": " + limitText(r, info, "") + with + hintText(r.Cause.Hint)
}

// How long the news that a sandbox has ended may be behind the news of its
// process's end.
const (
	endingLooks = 5
	endingPause = 100 * time.Millisecond
)

// tookSandbox asks whether the sandbox ended with a process. It does over its
// memory and CPU time, which are all its processes' together.
func tookSandbox(ctx context.Context, box *client.Sandbox, p sandbox.Process) bool {
	if p.Cause == nil || p.Cause.Kind != sandbox.CauseMemory && p.Cause.Kind != sandbox.CauseCPUTime {
		return false
	}
	for range endingLooks {
		info, err := box.Info(ctx)
		switch {
		case err != nil: // not known, so nothing is said of it
			return false
		case info.State != sandbox.StateRunning && info.State != sandbox.StatePaused:
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(endingPause):
		}
	}
	return false
}
