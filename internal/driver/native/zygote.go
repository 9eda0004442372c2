//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/walker"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// # Zygotes
//
// Package zygote says what a zygote is, and has the protocol with it. Here is what the
// kernel does for it.
//
// A zygote lives in namespaces of its own: mount, pid, network, IPC, host name, cgroup
// and time namespaces, a read-only root, a cgroup, a user id that nobody else has,
// no capabilities, no_new_privs. It is root nowhere, so it has no user
// namespace; and it has no system-call filter, since a child inherits it, and what
// it refused would be missing from the child's own count.
//
// A child gets a machine that is made like any other, by the same table of system
// calls, with three differences: its pid namespace lies below the zygote's,
// its user namespace belongs to the zygote's id, and its first process is an init stub. So
// the zygote's intermediate process may, without any privilege, enter exactly this
// machine's namespaces (setns with the pidfd of its first process), and its own child is
// born there. That one then takes on everything that a process started by the agent has,
// before it learns what it is to run: see newConfinement. Of the zygote's descriptors it keeps its three pipes.
// There is one copy of page tables for each run, which is made in the cgroup of the run.
//
// The zygote is process 1 of its pid namespace. So it inherits the children, learns how
// each ended, and takes all of them with it when it ends.

// reapTimeout bounds how long a zygote may take to collect a child that has
// ended. Until it has, the kernel does not report the end of the child's machine.
const reapTimeout = destroyTimeout / 2

// silentTimeout is for the news of a zygote's end, which comes another way than
// that of its children's machines.
const silentTimeout = 100 * time.Millisecond

// zygoteTasks is for the zygote itself and the children that have not left its
// cgroup yet.
const zygoteTasks = 64

// zygoteMachine is a zygote and the machine it is in.
type zygoteMachine struct {
	machine *machine
	driver  *Driver
	uid     int
	link    *zygote.Link
}

// Abilities implements driver.Driver.
func (d *Driver) Abilities() driver.Abilities {
	return driver.Abilities{
		Level: sandbox.LevelNamespace, Shows: true, Pauses: true, Snapshots: []string{sandbox.SnapshotFiles}, Zygoter: d,
		LateDoors: lateDoors(d.options.AgentDoors),
	}
}

// NewZygote implements driver.Zygoter.
func (d *Driver) NewZygote(ctx context.Context, plan driver.Plan, spec zygote.Spec) (driver.Zygote, error) {
	h, err := d.prepare()
	if err != nil {
		return nil, err
	}
	if !h.ids.root {
		return nil, fmt.Errorf("only root can give a zygote a user id of its own: %w", errors.ErrUnsupported)
	}
	if err := h.claim(d); err != nil {
		return nil, err
	}
	seen := plan.Limits // modules go by them
	plan.Limits.Processes = max(plan.Limits.Processes, zygoteTasks)
	plan.Limits.CPUs = float64(runtime.NumCPU())
	plan.SwitchUser = false
	// What the C library has read of nsswitch.conf its children do not read again in another
	// root. So it is that of machines with doors; in one without there is nobody to ask.
	plan.Template = plan.Template.WithNames(nil, driver.Resolver.Addr())
	m := d.newMachine(plan, h)
	m.seen = seen
	z := &zygoteMachine{machine: m, driver: d}
	m.spawn = spawnConfig{
		namespaces: namespaces &^ unix.CLONE_NEWUSER, socket: unix.SOCK_SEQPACKET,
		program: func(n *initSpec) *spawn.Program { return n.zygoteProgram(z.uid, spec) },
		leased:  func() { z.uid = m.block.Base + plan.User.UID },
	}
	if err := m.build(ctx, h.lock.Group(plan.ID)); err != nil {
		return nil, createError(errors.Join(err, m.Destroy(context.WithoutCancel(ctx))))
	}
	failpoint.Hit("native.zygote")
	z.link = zygote.NewLink(newZygoteConn(m.conn), z.kill)
	go z.guard()
	if err := z.load(ctx, spec, plan); err != nil {
		return nil, errors.Join(err, m.Destroy(context.WithoutCancel(ctx)))
	}
	return z, nil
}

// load has the zygote load its modules.
func (z *zygoteMachine) load(ctx context.Context, spec zygote.Spec, plan driver.Plan) error {
	joins := 0
	if z.machine.cgroup != nil {
		joins = z.machine.cgroup.Entries()
	}
	code := walker.Load()
	err := z.link.Load(ctx, zygote.Setup{
		Setup: spec.Setup, Confinement: newConfinement(z.machine.host, plan, spec, joins),
		Code: [3]zygote.Hex{code.Walk, code.Alloc, code.Free},
	})
	if errors.Is(err, zygote.ErrEnded) {
		return z.machine.endedFor(&zygote.UnfitError{Why: "it ended", Load: true})
	}
	return err
}

// guard ends a zygote that somebody stops: nobody would learn that its children
// have ended, and their machines would never be gone. It takes a thread.
func (z *zygoteMachine) guard() {
	for { // by its number, since waits through the pidfd do not block: see spawn.Child.Wait
		err := unix.Waitid(unix.P_PID, z.machine.child.PID, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	z.kill() // stopped, or dead already
}

// kill ends the zygote and with it, by the rules of pid namespaces, its children
// and their machines.
func (z *zygoteMachine) kill() { _ = z.machine.child.Kill() }

// endedFirst says whether the end of a child's machine is that of the zygote,
// whose connection ends a moment before.
func (z *zygoteMachine) endedFirst() bool {
	select {
	case <-z.link.Over():
		return true
	case <-time.After(silentTimeout):
		return false
	}
}

// Dead implements driver.Zygote.
func (z *zygoteMachine) Dead() <-chan struct{} { return z.machine.dead }

// Usage implements driver.Zygote.
func (z *zygoteMachine) Usage(ctx context.Context) (driver.Usage, error) {
	return z.machine.Usage(ctx)
}

// Destroy implements driver.Zygote.
func (z *zygoteMachine) Destroy(ctx context.Context) error { return z.machine.Destroy(ctx) }

// Fork implements driver.Zygote.
func (z *zygoteMachine) Fork(ctx context.Context, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	d, h := z.driver, z.machine.host
	if err := h.roomForOne(); err != nil {
		return nil, nil, err
	}
	m := d.newMachine(plan, h)
	m.zygote = z
	m.spawn.below = &spawn.Below{Process: z.machine.child.Pidfd, Owner: z.uid}
	err := m.build(ctx, h.lock.Group(plan.ID))
	var c *zygote.Child
	if err == nil {
		c, err = z.forkInto(ctx, m)
	}
	if err != nil {
		err = m.endedFor(err)
		if destroyErr := m.Destroy(context.WithoutCancel(ctx)); destroyErr != nil {
			err = errors.Join(err, destroyErr)
		}
		return nil, nil, createError(err)
	}
	failpoint.Hit("native.forked")
	return m, c, nil
}

// forkInto asks for a child in the machine and waits until it is ready.
func (z *zygoteMachine) forkInto(ctx context.Context, m *machine) (*zygote.Child, error) {
	pipes, err := newChildPipes(mount.Owner{UID: m.block.Base + m.plan.User.UID, GID: m.block.Base + m.plan.User.GID})
	if err != nil {
		return nil, err
	}
	defer pipes.closeTheirs()
	fds := append([]int{m.child.Pidfd}, pipes.theirs[:]...)
	if m.cgroup != nil && m.entries == nil {
		if m.entries, err = m.cgroup.EntryFiles(); err != nil {
			pipes.closeOurs()
			return nil, err
		}
	}
	defer m.closeEntries()
	born, err := z.link.Fork(ctx, append(fds, m.entries...), func(number int64) { m.overdue.child = number })
	if err == nil {
		if err = m.listenToChild(born.FDs); err != nil {
			z.link.Abandon(born.Number)
		}
	}
	if err != nil {
		pipes.closeOurs()
		return nil, err
	}
	return &zygote.Child{Stdin: pipes.ours[0], Stdout: pipes.ours[1], Stderr: pipes.ours[2], PID: born.PID, Exited: born.Exited}, nil
}

// listenToChild takes over the listener of the child's filter.
func (m *machine) listenToChild(fds []int) error {
	want := 0
	if m.plan.Enforces(sandbox.FeatureSeccomp) && m.host.features.filter.listens {
		want = 1
	}
	if len(fds) != want {
		closeAll(fds)
		return fmt.Errorf("the forked interpreter sent %d descriptors, not %d", len(fds), want)
	}
	if want == 1 {
		var err error
		m.childListener, err = startListener(fds[0])
		return err
	}
	return nil
}
