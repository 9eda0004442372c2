//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/seccomp"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Create makes the machine.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	h, err := d.prepare()
	if err == nil {
		err = d.claim()
	}
	if err != nil {
		return nil, err
	}
	if len(plan.Mounts) > 0 {
		return nil, (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "mounts", Message: "the process driver has no mounts: it shows the host's own file tree"}).
			WithAdvice(sandbox.Advise("copy the files in, or take %s", stronger))
	}
	if err := failure.NoDescriptors(); err != nil {
		return nil, err
	}
	m := &machine{driver: d, plan: plan, dir: filepath.Join(d.o.Dir, plan.ID), dead: make(chan struct{})}
	m.meter = meter{machine: m}
	if err := m.build(ctx, h); err != nil {
		if destroyErr := m.Destroy(context.WithoutCancel(ctx)); destroyErr != nil {
			err = errors.Join(err, destroyErr)
		}
		return nil, failure.Of("make the sandbox", err)
	}
	return m, nil
}

// build makes everything. What it has made is in m, for Destroy.
func (m *machine) build(ctx context.Context, h *host) (err error) {
	d := m.driver
	m.uid, m.gid = -1, -1
	if d.root {
		if m.block, err = d.pool.Lease(); err != nil {
			return err
		}
		m.uid, m.gid = m.block.Base+m.plan.User.UID, m.block.Base+m.plan.User.GID
	}
	failpoint.Hit("processdriver.leased")
	if err := m.makePlaces(); err != nil {
		return failure.Of("make the sandbox's directory", err)
	}
	failpoint.Hit("processdriver.places")
	conn, theirs, err := unixpair.New(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	m.conn = conn
	defer theirs.Close() //nolint:errcheck // the child has its own
	end, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	m.lifeline = lifeline
	defer end.Close() //nolint:errcheck // likewise
	s := &spec{
		host: h, template: m.plan.Template, uid: m.uid, gid: m.gid, limits: m.rlimits(), writable: []string{m.plan.User.Home, m.plan.User.Tmp},
		terminal: d.root, socket: int(theirs.Fd()), lifeline: int(end.Fd()),
	}
	child, err := s.program().Start(spawn.Clone{CopyLow: true})
	runtime.KeepAlive(h)
	if err != nil {
		return err
	}
	m.child = child
	failpoint.Hit("processdriver.spawned")
	_ = theirs.Close()
	return m.adopt(ctx, h)
}

// adopt waits until the process has become the supervisor, and takes over what it sends.
// A step that failed has ended it; the error names the step.
func (m *machine) adopt(ctx context.Context, h *host) error {
	stop := context.AfterFunc(ctx, func() { _ = m.child.Kill() })
	defer stop()
	var fds []int
	var recvErr error
	if h.support.Listener == nil {
		fds, recvErr = m.conn.ReceiveDescriptors()
	}
	if err := m.child.WaitExec(); err != nil {
		m.child = nil // it has been waited for
		closeAll(fds)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	m.watch()
	if err := m.record(); err != nil {
		closeAll(fds)
		return err
	}
	// The kernel ends sandboxes before who made them. It may be too late: the
	// supervisor hides its files from its own user.
	_ = os.WriteFile("/proc/"+strconv.Itoa(m.child.PID)+"/oom_score_adj", []byte("500"), 0)
	switch {
	case recvErr != nil:
		return fmt.Errorf("receive the filter's listener: %w", recvErr)
	case h.support.Listener != nil:
		return ctx.Err()
	case len(fds) != 1:
		closeAll(fds)
		return fmt.Errorf("the sandbox sent %d descriptors, not 1", len(fds))
	}
	var err error
	if m.listener, err = seccomp.NewListener(fds[0]); err != nil {
		return err
	}
	m.served = make(chan struct{})
	go func() {
		defer close(m.served)
		_ = m.listener.Serve() // it ends with the sandbox, or closes
	}()
	return ctx.Err()
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// spareProcesses is how far RLIMIT_NPROC lies above limits.processes: far enough to see a
// program that goes beyond its limit.
const spareProcesses = 2

// roomForOthers is how many tasks other sandboxes, and the user, may start meanwhile.
const roomForOthers = 1024

// rlimits hold for the supervisor and all that it starts. The agent's own come on top.
func (m *machine) rlimits() []rlimit {
	l := m.plan.Limits
	tasks := l.Processes + wire.MaxTasks + spareProcesses
	if !m.driver.root { // it counts all of the user's, other sandboxes' and supervisors' as well
		tasks += tasksOf(os.Geteuid()) + l.Processes + roomForOthers
	}
	return []rlimit{
		{unix.RLIMIT_CORE, 1}, // no core dumps, not even into a pipe (fs/coredump.c)
		{unix.RLIMIT_MEMLOCK, 64 << 10},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_SIGPENDING, 512},
		{unix.RLIMIT_NICE, 0},
		{unix.RLIMIT_RTPRIO, 0},
		{unix.RLIMIT_NPROC, uint64(tasks)}, //nolint:gosec // validated to be positive
		// Backstops: what is watched is ended before it comes to these, unless the host is
		// too busy to watch. Threads' stacks and what is never touched count here.
		{unix.RLIMIT_DATA, uint64(4*l.MemoryBytes + 1<<30)}, //nolint:gosec // as above
		{unix.RLIMIT_CPU, uint64(l.CPUTimeMS/1000 + 5)},     //nolint:gosec // as above
	}
}
