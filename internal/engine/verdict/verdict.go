// Package verdict decides why a program ended, and whether one that runs has to: from
// the counters that its driver reads, the end that its agent's kernel saw, and what the
// host did to it. All of it is pure. Nothing that a program prints or sends takes part.
package verdict

import (
	"fmt"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Evidence is all that is known about the end of a program. The host gathered
// it; of these fields only Exit comes from inside the sandbox, and it can only
// say how the program ended when nothing else ended it.
type Evidence struct {
	Limits sandbox.Limits
	Usage  driver.Usage // last reading, with the baseline before the program taken off

	Trigger *Trigger      // what the program was ended for, if anything
	Death   *driver.Death // the machine ended before the program was seen to end
	Exit    *Exit         // how the program ended, when it was seen to
	Floods  bool          // what it left behind was a flood of forks
	Living  bool          // it ran in a living sandbox
}

// Exit is a program's own end.
type Exit struct {
	Code   int
	Signal int // 0: it returned Code
}

// Trigger is the first reason for which the host ended a program.
type Trigger struct {
	Kind     sandbox.CauseKind
	Observed int64
	Evidence string
}

// Signals with a meaning of their own. The numbers are the same on every
// architecture that Pinfold runs on.
const (
	sigKill = 9
	sigXFSZ = 25
	sigSys  = 31
)

// Of decides the status and the cause. It is pure. First cause wins: what
// the host ended the program for, then what the kernel ended it for, then what
// the kernel refused it, then what the program did by itself.
func Of(e Evidence) (sandbox.Status, sandbox.Cause) {
	switch {
	case e.Usage.MemoryLate && (e.Trigger == nil || e.Trigger.Kind == sandbox.CauseLost):
		return sandbox.StatusError, e.MemoryCause()
	case e.Trigger != nil && e.Trigger.Kind == sandbox.CauseLost:
		return sandbox.StatusError, sandbox.Cause{Kind: sandbox.CauseLost, Evidence: e.Trigger.Evidence}
	case e.Trigger != nil:
		return sandbox.StatusKilled, e.starved(e.LimitCause(e.Trigger.Kind, e.Trigger.Observed, e.Trigger.Evidence))
	case e.Usage.OOMKills > 0:
		return sandbox.StatusKilled, e.MemoryCause()
	case e.Death != nil:
		return e.deathVerdict()
	case e.Exit == nil:
		return sandbox.StatusError, sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "the program's end was not seen"}
	case e.Floods:
		// The program is gone, but what it left behind went on forking until
		// it was ended.
		return sandbox.StatusKilled, e.Refusal(sandbox.CauseProcesses)
	case e.Exit.Code == 0 && e.Exit.Signal == 0:
		return sandbox.StatusSucceeded, sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"}
	}
	return sandbox.StatusFailed, e.failureCause()
}

// starved advises more processes, too, where a program was refused some and then did next
// to nothing until its time ran out: many wait for ever for a thread that never began.
func (e Evidence) starved(c sandbox.Cause) sandbox.Cause {
	idle := e.Usage.CPUNanos/1e6 < c.Observed/floodIdle
	if c.Kind != sandbox.CauseWallTime || !idle || e.Usage.ProcessesDenied == 0 && !e.Usage.ProcessesFull {
		return c
	}
	refusal := e.Refusal(sandbox.CauseProcesses)
	more, ok := refusal.Advice.Find(sandbox.FixSet)
	if !ok {
		return c
	}
	if usual := sandbox.DefaultLimits().Processes; refusal.Limit < usual {
		more = sandbox.Set(more.Name, usual)
	}
	before := sandbox.Text(refusal.Evidence + ", and then the program did next to nothing: ")
	advice := sandbox.Advice{before, more}
	if longer, ok := c.Advice.Find(sandbox.FixSet); ok {
		advice = append(advice, sandbox.Text(", or else "), longer)
	}
	return c.WithAdvice(advice)
}

func (e Evidence) deathVerdict() (sandbox.Status, sandbox.Cause) {
	if e.Death.Kind == driver.DeathMemory {
		return sandbox.StatusKilled, e.MemoryCause()
	}
	if e.Usage.ProcessesDenied > 0 {
		return sandbox.StatusKilled, e.Refusal(sandbox.CauseProcesses)
	}
	return sandbox.StatusError, sandbox.Cause{
		Kind: sandbox.CauseLost, Evidence: e.Death.Evidence,
		Hint: "the sandbox ended before the program; run it again",
	}
}

// failureCause finds out why a program ended unhappily by itself.
func (e Evidence) failureCause() sandbox.Cause {
	switch {
	case e.Usage.Killed != "" && (e.diedOf(sigSys) || e.diedOf(sigKill)):
		return e.syscallCause() // a program that catches SIGSYS is ended by SIGKILL
	case e.Exit.Signal == sigXFSZ && e.Limits.FileSizeBytes > 0 && e.Usage.DiskPeak >= e.Limits.FileSizeBytes:
		// A program can send itself the signal, but not make its disk as full as
		// that without writing so much.
		return e.LimitCause(sandbox.CauseFileSize, e.Limits.FileSizeBytes, "ended by SIGXFSZ, with as much on the disk as a file may have")
	case e.Usage.DiskFull:
		return e.Refusal(sandbox.CauseDisk)
	case e.Usage.InodesFull:
		return e.Refusal(sandbox.CauseInodes)
	case e.Usage.ProcessesDenied > 0, e.Usage.ProcessesFull:
		return e.Refusal(sandbox.CauseProcesses)
	case e.Exit.Signal != 0:
		return sandbox.Cause{
			Kind: sandbox.CauseSignaled, Evidence: "ended by " + SignalName(e.Exit.Signal),
			Hint: signalHints[e.Exit.Signal],
		}
	}
	return sandbox.Cause{Kind: sandbox.CauseExited, Evidence: fmt.Sprintf("exit status %d", e.Exit.Code)}
}

// diedOf says whether a signal ended the program, or a child whose fate a shell
// then made its own.
func (e Evidence) diedOf(signal int) bool {
	return e.Exit.Signal == signal || e.Exit.Signal == 0 && e.Exit.Code == 128+signal
}

// signalHints says what usually lies behind a program's own signal.
var signalHints = map[int]string{
	4:       "an illegal instruction: was the program built for another processor?",
	6:       "the program called abort(), often after a failed assertion; its stderr says more",
	8:       "an arithmetic error, such as a division by zero",
	11:      "the program used memory that is not its own",
	sigKill: "a process inside the sandbox sent SIGKILL",
	13:      "the program wrote to a pipe that nobody reads any more",
	sigXFSZ: "the kernel sends it where a file would grow beyond the limit of file size, and so may any process inside",
	sigSys:  "the system-call filter sends it for calls in a foreign calling convention (32-bit, x32), and so may any process inside",
}

func (e Evidence) syscallCause() sandbox.Cause {
	return sandbox.Cause{
		Kind: sandbox.CauseSyscall, Syscall: e.Usage.Killed,
		Evidence: "the system-call filter ended the program at " + e.Usage.Killed,
		Hint:     "no sandbox allows this call; docs/seccomp.md lists what is allowed",
	}
}

// MemoryCause is the cause of what the kernel's out-of-memory killer ended. The kernel
// charges files on a sandbox's disk as memory; where the host was late to allow for them,
// nobody can say whether the program kept to its limits.
func (e Evidence) MemoryCause() sandbox.Cause {
	if e.Usage.MemoryLate {
		return sandbox.Cause{
			Kind:     sandbox.CauseLost,
			Evidence: "the kernel's out-of-memory killer acted before the host had allowed for the files that the program wrote; it may have kept to its limits",
			Hint:     "run it again; where that happens often the host is too busy, or the program fills its disk and its memory at once",
		}
	}
	return e.LimitCause(sandbox.CauseMemory, max(e.Usage.MemoryPeak, e.Limits.MemoryBytes),
		fmt.Sprintf("the kernel's out-of-memory killer acted %d time(s) in the sandbox", max(1, e.Usage.OOMKills)))
}

// Refusal is the cause for a limit at which the kernel said no and the program
// went on to fail.
func (e Evidence) Refusal(kind sandbox.CauseKind) sandbox.Cause {
	switch kind {
	case sandbox.CauseDisk:
		if e.Usage.DiskPeak > e.Limits.DiskBytes { // it is watched
			return e.LimitCause(kind, e.Usage.DiskPeak, fmt.Sprintf("%d bytes were on the sandbox's disk", e.Usage.DiskPeak))
		}
		return e.LimitCause(kind, e.Usage.DiskPeak, "the sandbox's disk had no free block (ENOSPC)")
	case sandbox.CauseInodes:
		if e.Usage.InodesPeak > e.Limits.Inodes {
			return e.LimitCause(kind, e.Usage.InodesPeak, fmt.Sprintf("more than %d files and directories were on the sandbox's disk", e.Limits.Inodes))
		}
		return e.LimitCause(kind, e.Usage.InodesPeak, "the sandbox's disk had no free inode (ENOSPC)")
	}
	why := fmt.Sprintf("the kernel refused %d fork(s) (EAGAIN)", e.Usage.ProcessesDenied)
	if peak := e.Usage.ProcessesPeak; e.Usage.ProcessesFull { // refusals are not counted
		why = fmt.Sprintf("%d processes and threads were seen at once", peak)
	}
	// The limit was reached, not passed: how many there were besides is a count of
	// our own, in which what is just ending or beginning can stand, too.
	return e.LimitCause(kind, e.Limits.Processes, why)
}

// LimitCause completes a cause from the table of limits.
func (e Evidence) LimitCause(kind sandbox.CauseKind, observed int64, why string) sandbox.Cause {
	c := sandbox.Cause{Kind: kind, Observed: observed, Evidence: why}
	for _, info := range sandbox.LimitTable() {
		if info.Cause != kind {
			continue
		}
		c.Limit = e.Limits.Get(info.Field)
		if c.Limit <= 0 || c.Limit >= info.Max { // it cannot be raised
			return c
		}
		how, field := "raise it if the program is right to need more: %s", "limits."+info.Field
		switch {
		case !e.Living:
		case kind == sandbox.CauseWallTime: // a process's own
			field = info.Field
		default:
			how = "create a sandbox with a higher limit if the program is right to need more: %s"
		}
		return c.WithAdvice(sandbox.Advise(how, sandbox.Set(field, raised(c, info))))
	}
	return c
}

// raised is a limit that is likely to do: twice the one that was met, or for output
// more than was seen.
func raised(c sandbox.Cause, info sandbox.LimitInfo) int64 {
	more := Raised(c.Limit, info)
	for info.Cause == sandbox.CauseOutput && more <= c.Observed && more < info.Max {
		more *= 2
	}
	return min(more, info.Max)
}

// Raised is twice the limit, in a form that FormatQuantity writes exactly.
func Raised(limit int64, info sandbox.LimitInfo) int64 {
	twice := 2 * limit
	if info.Unit != sandbox.UnitBytes {
		return twice
	}
	for unit := int64(1 << 40); unit > 1; unit >>= 10 {
		if twice >= unit {
			return (twice + unit - 1) / unit * unit
		}
	}
	return twice
}

// TimedOut says whether the cause is a lack of time.
func TimedOut(kind sandbox.CauseKind) bool {
	return kind == sandbox.CauseWallTime || kind == sandbox.CauseCPUTime
}

// Ending says how the program ended in the words of wait(2).
func (e Evidence) Ending() (code *int, signal string) {
	switch {
	case e.Exit != nil && e.Exit.Signal != 0:
		return nil, SignalName(e.Exit.Signal)
	case e.Exit != nil && e.Trigger == nil:
		c := e.Exit.Code
		return &c, ""
	case e.Trigger != nil || e.Usage.OOMKills > 0:
		return nil, SignalName(sigKill)
	}
	return nil, ""
}
