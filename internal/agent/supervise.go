//go:build linux

package agent

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
)

// Supervise is the agent's argument where there is no pid namespace: the process becomes
// the supervisor of an agent, which it starts, and of all that is below. Descriptor 3 is
// the agent's to the host; the next one the supervisor's: when its other end closes, all
// ends. The argument after it is Landlock's level.
//
// All that it may signal is the sandbox's, and none of these can signal it: by user ids
// that nobody else has, its real one being another than the agent's and all programs', or
// by Landlock, the agent being one domain further in.
const Supervise = "supervise"

// Alone is the argument of the agent below a supervisor.
const Alone = "alone"

// lifeline is the supervisor's descriptor to the host.
const lifeline = wire.ConnFD + 1

// supervisor is the process that outlives all others of its sandbox.
type supervisor struct {
	host  *pollFile
	reap  *reaper
	agent *child
}

// Supervised starts the agent and returns when nothing of the sandbox is left: because
// the host has closed the lifeline, or because the agent has ended.
func Supervised(level string) error {
	n, err := strconv.Atoi(level)
	if err != nil {
		return err
	}
	// The exec has saved the effective one. Before harden: the runtime does it on all
	// threads, by signals.
	if err := unix.Setresuid(os.Getuid(), os.Geteuid(), os.Getuid()); err != nil {
		return err
	}
	if err := harden(); err != nil {
		return err
	}
	oneThread()
	// Who could signal the host could signal the host's other processes.
	if err := sysKill(os.Getppid(), 0); !errors.Is(err, unix.EPERM) {
		return errors.New("the supervisor may signal processes that are not the sandbox's")
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	s := &supervisor{}
	if s.host, err = newPollFile(lifeline, "host"); err != nil {
		return err
	}
	if s.reap, err = newReaper(); err != nil {
		return err
	}
	if s.agent, err = s.reap.start(func() (int, error) { return startAgent(n) }); err != nil {
		return err
	}
	if err := sysClose(wire.ConnFD); err != nil {
		return err
	}
	s.reap.alone = true
	s.reap.begin()
	return s.await()
}

// startAgent starts this program as the agent, in a domain of its own.
func startAgent(level int) (pid int, err error) {
	p := spawn.New(wire.ConnFD)
	p.Setsid()
	p.Setresuid(os.Geteuid())
	dieTogether(p)
	if attr := landlock.ScopeAttr(level); attr != nil {
		rules := p.Result("make Landlock rules", unix.SYS_LANDLOCK_CREATE_RULESET, attr, len(attr), 0)
		rule := append(landlock.PathBeneathAttr(landlock.ScopeRights, 0), 0, 0, 0, 0) // a Cell is eight bytes
		root := p.CellAt(rule, landlock.PathBeneathFDOffset)
		p.Call("open /", unix.SYS_OPENAT, unix.AT_FDCWD, "/", unix.O_PATH|unix.O_CLOEXEC, 0)
		p.SaveTo(root)
		p.Call("add Landlock rule for /", unix.SYS_LANDLOCK_ADD_RULE, rules.Ref(), landlock.RulePathBeneath, rule, 0)
		p.Call("apply Landlock rules", unix.SYS_LANDLOCK_RESTRICT_SELF, rules.Ref(), landlock.RestrictFlags(level))
	}
	p.CloseOnExecFrom(wire.ConnFD)
	p.Dup2(wire.ConnFD, wire.ConnFD)
	p.UnblockSignals()
	p.Exec("/proc/self/exe", []string{"pinfold-agent", Alone}, os.Environ())
	child, err := p.Start(spawn.Clone{})
	if err != nil {
		return 0, err
	}
	if err := child.WaitExec(); err != nil {
		return 0, err
	}
	_ = sysClose(child.Pidfd) // the table of the reaper names the process
	return child.PID, nil
}

// await waits for the first reason to end, and ends all.
func (s *supervisor) await() error {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var b [1]byte
		_, _ = s.host.Read(b[:]) // nobody writes: it returns at the end
	}()
	var err error
	select {
	case <-gone:
	case <-s.agent.exited:
		err = errors.New("the agent has ended")
	}
	for !s.reap.killAll(func() bool { return false }) {
		time.Sleep(killPause)
	}
	return err
}

// killPause is between two long attempts to kill what does not die.
const killPause = 100 * time.Millisecond

// childless says whether this process has no child, dead or alive. Where it is the one to
// whom orphans go it has nothing below it then.
func childless() bool {
	return errors.Is(sysWaitid(), unix.ECHILD)
}

// dieTogether adds the step that ends a process with this one, should anybody kill it.
func dieTogether(p *spawn.Program) {
	p.Call("die with the parent", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0)
}

// adoptOrphans makes this process the one to whom orphans below it go.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
