package engine

import (
	"fmt"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// evidence is all that is known about the end of a program. The host gathered
// it; of these fields only exit comes from inside the sandbox, and it can only
// say how the program ended when nothing else ended it.
type evidence struct {
	limits sandbox.Limits
	usage  driver.Usage // last reading, with the baseline before the program taken off
	wallMS int64

	trigger *trigger      // what the watch or the caller ended it for, if anything
	death   *driver.Death // the machine ended before the program was seen to end
	exit    *exit         // how the program ended, when it was seen to
	held    bool          // processes that it left behind were ended by the host
	floods  bool          // they were a flood of forks
	living  bool          // it ran in a living sandbox
}

// exit is a program's own end.
type exit struct {
	code   int
	signal int // 0: it returned code
}

// trigger is the first reason for which the host ended a program.
type trigger struct {
	kind     sandbox.CauseKind
	observed int64
	evidence string
}

// Signals with a meaning of their own. The numbers are the same on every
// architecture that Pinfold runs on.
const (
	sigKill = 9
	sigXFSZ = 25
	sigSys  = 31
)

// verdict decides the status and the cause. It is pure. First cause wins: what
// the host ended the program for, then what the kernel ended it for, then what
// the kernel refused it, then what the program did by itself.
func verdict(e evidence) (sandbox.Status, sandbox.Cause) {
	switch {
	case e.trigger != nil:
		return sandbox.StatusKilled, e.limitCause(e.trigger.kind, e.trigger.observed, e.trigger.evidence)
	case e.usage.OOMKills > 0:
		return sandbox.StatusKilled, e.memoryCause()
	case e.death != nil:
		return e.deathVerdict()
	case e.exit == nil:
		return sandbox.StatusError, sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "the program's end was not seen"}
	case e.floods:
		// The program is gone, but what it left behind went on forking until
		// it was ended.
		return sandbox.StatusKilled, e.refusal(sandbox.CauseProcesses)
	case e.exit.code == 0 && e.exit.signal == 0:
		return sandbox.StatusSucceeded, sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"}
	}
	return sandbox.StatusFailed, e.failureCause()
}

func (e evidence) deathVerdict() (sandbox.Status, sandbox.Cause) {
	if e.death.Kind == driver.DeathMemory {
		return sandbox.StatusKilled, e.memoryCause()
	}
	if e.usage.ProcessesDenied > 0 {
		return sandbox.StatusKilled, e.refusal(sandbox.CauseProcesses)
	}
	return sandbox.StatusError, sandbox.Cause{
		Kind: sandbox.CauseLost, Evidence: e.death.Evidence,
		Hint: "the sandbox ended before the program; run it again",
	}
}

// failureCause finds out why a program ended unhappily by itself.
func (e evidence) failureCause() sandbox.Cause {
	switch {
	case e.usage.Killed != "" && (e.diedOf(sigSys) || e.diedOf(sigKill)):
		return e.syscallCause() // a program that catches SIGSYS is ended by SIGKILL
	case e.exit.signal == sigXFSZ && e.limits.FileSizeBytes > 0 && e.usage.DiskPeak >= e.limits.FileSizeBytes:
		// A program can send itself the signal, but not make its disk as full as
		// that without writing so much.
		return e.limitCause(sandbox.CauseFileSize, e.limits.FileSizeBytes, "ended by SIGXFSZ, with as much on the disk as a file may have")
	case e.usage.DiskFull:
		return e.refusal(sandbox.CauseDisk)
	case e.usage.InodesFull:
		return e.refusal(sandbox.CauseInodes)
	case e.usage.ProcessesDenied > 0, e.usage.ProcessesFull:
		return e.refusal(sandbox.CauseProcesses)
	case e.exit.signal != 0:
		return sandbox.Cause{
			Kind: sandbox.CauseSignaled, Evidence: "ended by " + SignalName(e.exit.signal),
			Hint: signalHints[e.exit.signal],
		}
	}
	return sandbox.Cause{Kind: sandbox.CauseExited, Evidence: fmt.Sprintf("exit status %d", e.exit.code)}
}

// diedOf says whether a signal ended the program, or a child whose fate a shell
// then made its own.
func (e evidence) diedOf(signal int) bool {
	return e.exit.signal == signal || e.exit.signal == 0 && e.exit.code == 128+signal
}

// signalHints says what usually lies behind a program's own signal.
var signalHints = map[int]string{
	4:       "an illegal instruction: was the program built for another processor?",
	6:       "the program called abort(), often after a failed assertion; its stderr says more",
	8:       "an arithmetic error, such as a division by zero",
	11:      "the program used memory that is not its own",
	sigKill: "a process inside the sandbox sent SIGKILL",
	13:      "the program wrote to a pipe that nobody reads any more",
	sigXFSZ: "the kernel sends it where a file would grow beyond limits.file_size_bytes, and so may any process inside",
	sigSys:  "the system-call filter sends it for calls in a foreign calling convention (32-bit, x32), and so may any process inside",
}

func (e evidence) syscallCause() sandbox.Cause {
	return sandbox.Cause{
		Kind: sandbox.CauseSyscall, Syscall: e.usage.Killed,
		Evidence: "the system-call filter ended the program at " + e.usage.Killed,
		Hint:     "no sandbox allows this call; docs/seccomp.md lists what is allowed",
	}
}

func (e evidence) memoryCause() sandbox.Cause {
	return e.limitCause(sandbox.CauseMemory, max(e.usage.MemoryPeak, e.limits.MemoryBytes),
		fmt.Sprintf("the kernel's out-of-memory killer acted %d time(s) in the sandbox", max(1, e.usage.OOMKills)))
}

// refusal is the cause for a limit at which the kernel said no and the program
// went on to fail.
func (e evidence) refusal(kind sandbox.CauseKind) sandbox.Cause {
	switch kind {
	case sandbox.CauseDisk:
		return e.limitCause(kind, e.usage.DiskPeak, "the sandbox's disk had no free block (ENOSPC)")
	case sandbox.CauseInodes:
		return e.limitCause(kind, e.usage.InodesPeak, "the sandbox's disk had no free inode (ENOSPC)")
	}
	why := fmt.Sprintf("the kernel refused %d fork(s) (EAGAIN)", e.usage.ProcessesDenied)
	if peak := e.usage.ProcessesPeak; e.usage.ProcessesFull { // refusals are not counted
		why = fmt.Sprintf("%d processes and threads were seen at once", peak)
	}
	// The limit was reached, not passed: how many there were besides is a count of
	// our own, in which what is just ending or beginning can stand, too.
	return e.limitCause(kind, e.limits.Processes, why)
}

// flood is why a program is ended that does nothing but fork at the limit.
func (e evidence) flood() *trigger {
	c := e.refusal(sandbox.CauseProcesses)
	return &trigger{c.Kind, c.Observed, c.Evidence + " and the program did nothing but go on"}
}

// limitCause completes a cause from the table of limits.
func (e evidence) limitCause(kind sandbox.CauseKind, observed int64, why string) sandbox.Cause {
	c := sandbox.Cause{Kind: kind, Observed: observed, Evidence: why}
	for _, info := range sandbox.LimitTable() {
		if info.Cause != kind {
			continue
		}
		c.Limit = e.limits.Get(info.Field)
		more := min(2*c.Limit, info.Max)
		switch {
		case !e.living:
			c.Hint = fmt.Sprintf(`raise it if the program is right to need more: "limits": {"%s": %d}`, info.Field, more)
		case kind == sandbox.CauseWallTime: // a process's own
			c.Hint = fmt.Sprintf(`raise it if the program is right to need more: "%s": %d`, info.Field, more)
		default:
			c.Hint = fmt.Sprintf(`create a sandbox with a higher limit if the program is right to need more: "limits": {"%s": %d}`, info.Field, more)
		}
		return c
	}
	return c
}

// timedOut says whether the cause is a lack of time.
func timedOut(kind sandbox.CauseKind) bool {
	return kind == sandbox.CauseWallTime || kind == sandbox.CauseCPUTime
}
