//go:build linux

package agent

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// child is a process that the agent has started.
type child struct {
	pid     int
	started time.Time
	exited  chan wire.Exit // receives once
}

// reaper is the one place that waits for processes: those that the agent has
// started, whose end it hands on, and orphans. A pid is freed by its wait only,
// and that happens under the lock; so under the lock a pid that is in the
// table means the process that it names.
type reaper struct {
	once    sync.Once
	mu      sync.Mutex
	running map[int]*child
	events  *pollFile // an eventfd that counts SIGCHLD
	// alone says that all that this process may signal is the sandbox's, and that orphans
	// come to it.
	alone bool
}

func newReaper() (*reaper, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	events, err := newPollFile(fd, "children")
	if err != nil {
		return nil, err
	}
	if err := countChildren(fd); err != nil {
		return nil, err
	}
	return &reaper{running: map[int]*child{}, events: events}, nil
}

// barrier waits for the start that is under way.
func (r *reaper) barrier() {
	r.mu.Lock()
	defer r.mu.Unlock()
}

// start calls f, which makes a process, and registers the process before
// anybody can wait for it.
func (r *reaper) start(f func() (pid int, err error)) (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &child{started: time.Now(), exited: make(chan wire.Exit, 1)}
	pid, err := f()
	if err != nil {
		return nil, err
	}
	c.pid = pid
	r.running[pid] = c
	return c, nil
}

// forget takes a process out of the table that somebody else has waited for.
func (r *reaper) forget(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[c.pid] == c {
		delete(r.running, c.pid)
	}
}

// signal sends a signal to a child, or to its group, unless it has ended.
func (r *reaper) signal(c *child, sig unix.Signal, group bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[c.pid] != c {
		return
	}
	pid := c.pid
	if group {
		pid = -pid
	}
	_ = sysKill(pid, sig) // it may be dead already
}

// place says which processors a child's first thread may use, unless it has ended.
// What it starts from then on has the same.
func (r *reaper) place(c *child, cpus []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[c.pid] == c {
		_ = sysSchedSetaffinity(c.pid, cpus) // the sandbox may have others; the quota is what holds
	}
}

// begin has processes waited for.
func (r *reaper) begin() {
	r.once.Do(func() { go r.run() })
}

// run waits for processes for ever. Whatever has ended before the eventfd is
// read is collected after it, and what had before anybody counted, at once: the
// agent may have taken the place of another process 1.
func (r *reaper) run() {
	r.collect()
	var count [8]byte
	for {
		if _, err := r.events.Read(count[:]); err != nil {
			return // of an agent that ends
		}
		r.collect()
	}
}

// collect waits for every process that has ended.
func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := sysWait4(-1, &status, unix.WNOHANG|unix.WALL, &usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c := r.running[pid]; c != nil {
			delete(r.running, pid)
			c.exited <- exitOf(c, status, usage)
		}
	}
}

func exitOf(c *child, status unix.WaitStatus, usage unix.Rusage) wire.Exit {
	e := wire.Exit{
		WallNS: time.Since(c.started).Nanoseconds(),
		CPUNS:  usage.Utime.Nano() + usage.Stime.Nano(),
	}
	if status.Signaled() {
		e.Signal = int(status.Signal())
	} else {
		e.Code = status.ExitStatus()
	}
	return e
}

// killTimeout is how long killAll waits for the dead to be gone.
const killTimeout = 10 * time.Second

// killAll kills everything but the agent and waits until it is gone. As pid 1
// that is every process of the pid namespace, below a supervisor every one that
// it may signal; otherwise (in tests) the groups of the agent's own children.
func (a *agent) killAll(c *channel, _ wire.Request) wire.Outcome {
	if !a.reap.killAll(c.abandoned) {
		return failed(fault(sandbox.CodeResourceUnavailable, "some processes do not die"))
	}
	return wire.Outcome{}
}

// killAll says whether all are gone. It gives up after killTimeout, and when the host
// does.
func (r *reaper) killAll(giveUp func() bool) (gone bool) {
	kill := r.killGroups
	switch {
	case r.alone:
		kill = func() bool { _ = sysKill(-1, unix.SIGKILL); return childless() }
	case os.Getpid() == 1:
		kill = func() bool { return errors.Is(sysKill(-1, unix.SIGKILL), unix.ESRCH) }
	}
	pause := 50 * time.Microsecond
	for until := time.Now().Add(killTimeout); !kill(); pause = min(2*pause, 5*time.Millisecond) {
		if giveUp() || time.Now().After(until) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// killGroups kills the group of every running child and says whether there
// was none.
func (r *reaper) killGroups() (none bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range r.running {
		_ = sysKill(-pid, unix.SIGKILL)
	}
	return len(r.running) == 0
}
