//go:build linux

package native

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/walker"
	"pinfold/sandbox"
)

// # Zygotes
//
// A zygote is an interpreter that has loaded its modules and is forked for each
// run. It lives in namespaces of its own: mount, pid, network, IPC, host name, cgroup
// and time namespaces, a read-only root, a cgroup, a user id that nobody else has,
// no capabilities, no_new_privs. It is no root anywhere, so it has no user
// namespace; and no system-call filter, since a fork inherits it, and what
// it refused would be missing from the fork's own count.
//
// A fork gets a machine that is made like any other, by the same table of system
// calls, with two differences: its pid namespace lies below the zygote's, and
// its user namespace belongs to the zygote's id. So the zygote's child may, without
// any privilege, enter exactly this machine's namespaces (setns with the pidfd
// of its first process), and its own child is born there. That one then takes on
// everything that a process started by the agent has, before it learns what it is
// to run: see confinement. It is handed nothing else: of the zygote's descriptors it
// has its three pipes.
//
// Once it has loaded everything the zygote runs no Python any more: a page that it
// wrote to would be copied for each fork. It walks a table of calls, which it has
// made of the confinement, with machine code of package walker. The first child
// shares its memory while the zygote waits for it, as after vfork(2); so there is one
// copy of page tables for each run, which is made in the cgroup of the run. To
// fork it calls the C library, which has libraries take notice.
//
// The zygote is process 1 of its pid namespace. So it inherits the forks, learns how
// each ended, and takes all of them with it when it ends.
//
// # Protocol
//
// Packets on descriptor 3, a SOCK_SEQPACKET socket. To the zygote, first, JSON:
//
//	{"setup": …, "confinement": …, "code": […]}
//
// It answers {"loaded": true, "calls": [names]}, {"unfit": "why"} or {"failed": "why"}.
// From then on packets are words of 64 bits. Then for each fork
//
//	0, fork
//
// with descriptors: the pidfd of the machine's first process, standard input,
// output and error, and as many files as the confinement says to which "0" is to be
// written to join the machine's cgroup. The zygote or the fork answers
//
//	1, fork, pid           it was born, with that number in the zygote's namespace
//	2, fork, call, -errno  it was not, or ended: call is an index into calls, or 0
//	3, fork, pid           it is ready, with that number in its own
//	4, pid, status, user seconds, microseconds, system seconds, microseconds
//
// the third with the listener of its filter. The fourth says that it has ended, with
// the zygote's number of it, and a status as of wait(2).

// maxPacket bounds a packet from a zygote.
const maxPacket = 4 << 10

// forkTimeout bounds how long a fork may take, and how long a zygote that is to
// fork may be silent.
const forkTimeout = 10 * time.Second

// reapTimeout bounds how long a zygote may take to collect a fork that has
// ended. Until it has, the kernel does not report the end of the fork's machine.
const reapTimeout = destroyTimeout / 2

// silentTimeout is for the news of a zygote's end, which comes another way than
// that of its forks' machines.
const silentTimeout = 100 * time.Millisecond

// zygoteTasks is for the zygote itself and the forks that have not left its
// cgroup yet.
const zygoteTasks = 64

// zygote is an interpreter that is forked, and the machine it is in.
type zygote struct {
	machine *machine
	driver  *Driver
	uid     int

	send sync.Mutex

	mu    sync.Mutex
	last  int64
	forks map[int64]*fork
	pids  map[int64]int64 // of those that were born, in the zygote's namespace: their forks
	calls []string        // the names of what the zygote calls, to say what failed
	gone  bool            // no answers come any more
	heard time.Time
	ready chan packet

	silent chan struct{} // closed when gone is true
}

// fork is one that was asked for and has not ended.
type fork struct {
	ready  chan packet
	exited chan driver.ChildExit
}

// Abilities implements driver.Driver.
func (d *Driver) Abilities() driver.Abilities { return driver.Abilities{Zygoter: d} }

// NewZygote implements driver.Zygoter.
func (d *Driver) NewZygote(ctx context.Context, plan driver.Plan, spec driver.ZygoteSpec) (driver.Zygote, error) {
	h, err := d.prepare()
	if err != nil {
		return nil, err
	}
	if !h.ids.root {
		return nil, fmt.Errorf("only root can give a parent a user id of its own: %w", errors.ErrUnsupported)
	}
	if err := h.claim(d); err != nil {
		return nil, err
	}
	seen := plan.Limits // modules go by them
	plan.Limits.Processes = max(plan.Limits.Processes, zygoteTasks)
	plan.Limits.CPUs = float64(runtime.NumCPU())
	plan.SwitchUser = false
	m := d.newMachine(plan, h)
	m.seen = seen
	p := &zygote{machine: m, driver: d, forks: map[int64]*fork{}, pids: map[int64]int64{}, ready: make(chan packet, 1), silent: make(chan struct{})}
	m.spawn = spawnConfig{
		namespaces: namespaces &^ unix.CLONE_NEWUSER, socket: unix.SOCK_SEQPACKET,
		program: func(n *initSpec) *spawn.Program { return n.zygoteProgram(p.uid, spec) },
		leased:  func() { p.uid = m.block.Base + sandbox.UID },
	}
	if err := m.build(ctx, h.groupName(d.token, plan.ID)); err != nil {
		return nil, createError(errors.Join(err, m.Destroy(context.WithoutCancel(ctx))))
	}
	failpoint.Hit("native.parent")
	go p.listen()
	go p.guard()
	if err := p.load(ctx, spec, plan); err != nil {
		return nil, errors.Join(err, m.Destroy(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// load has the zygote load its modules.
func (p *zygote) load(ctx context.Context, spec driver.ZygoteSpec, plan driver.Plan) error {
	joins := 0
	if p.machine.cgroup != nil {
		joins = p.machine.cgroup.Entries()
	}
	code := walker.Load()
	first, err := json.Marshal(map[string]any{
		"setup": spec.Setup, "confinement": newConfinement(p.machine.host, plan, spec, joins),
		"code": []string{hex.EncodeToString(code.Walk), hex.EncodeToString(code.Alloc), hex.EncodeToString(code.Free)},
	})
	if err != nil {
		return sandbox.Errorf(sandbox.CodeInternal, "encoding a parent's setup: %w", err)
	}
	if err := p.packet(first); err != nil {
		return err
	}
	select {
	case s := <-p.ready:
		return p.loaded(s)
	case <-p.silent:
	case <-ctx.Done():
		return &driver.UnfitError{Why: "it took too long", Load: true}
	}
	select {
	case s := <-p.ready: // its last words
		return p.loaded(s)
	default:
		return p.machine.endedFor(&driver.UnfitError{Why: "it ended", Load: true})
	}
}

// loaded is what came of loading the modules.
func (p *zygote) loaded(s packet) error {
	switch {
	case s.Unfit != "":
		return &driver.UnfitError{Why: s.Unfit}
	case s.Failed != "" || !s.Loaded:
		return &driver.UnfitError{Why: s.Failed, Load: true}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = s.Calls
	return nil
}

// guard ends a zygote that somebody stops: nobody would learn that its forks
// have ended, and their machines would never be gone. It takes a thread.
func (p *zygote) guard() {
	for { // by its number, since waits through the pidfd do not block: see spawn.Child.Wait
		err := unix.Waitid(unix.P_PID, p.machine.child.PID, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.kill() // stopped, or dead already
}

// kill ends the zygote and with it, by the rules of pid namespaces, its forks
// and their machines.
func (p *zygote) kill() { _ = p.machine.child.Kill() }

// endedFirst says whether the end of a fork's machine is that of the zygote,
// whose connection ends a moment before.
func (p *zygote) endedFirst() bool {
	select {
	case <-p.silent:
		return true
	case <-time.After(silentTimeout):
		return false
	}
}

// packet sends a packet with descriptors.
func (p *zygote) packet(b []byte, fds ...int) error {
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	p.send.Lock()
	defer p.send.Unlock()
	_ = p.machine.conn.SetWriteDeadline(time.Now().Add(forkTimeout)) // a stopped zygote reads nothing
	if err := p.machine.conn.sendmsg(b, control); err != nil {
		return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the parent of forked interpreters does not answer: " + err.Error(), Err: err}
	}
	return nil
}

// listen hands out what the zygote and its forks say.
func (p *zygote) listen() {
	b, control := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, cn, flags, err := p.machine.conn.recvmsg(b, control)
		if err != nil || n == 0 {
			break
		}
		s, ok := decodePacket(b[:n], rights(control[:cn]))
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || !ok || !p.take(s) {
			closeAll(s.fds)
			p.kill() // it is not what we started any more
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	close(p.silent)
	for _, f := range p.forks {
		close(f.exited)
	}
	p.forks = nil
}

// take acts on a packet and says whether it made sense.
func (p *zygote) take(s packet) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	switch {
	case s.Exit != 0:
		id := p.pids[s.Exit]
		delete(p.pids, s.Exit)
		f := p.forks[id]
		if f == nil { // it failed and was given up
			return len(s.fds) == 0
		}
		delete(p.forks, id)
		f.exited <- s.exit
		close(f.exited)
		return len(s.fds) == 0
	case s.Born != 0:
		if p.forks[s.Born] != nil {
			p.pids[s.PID] = s.Born
		}
		return len(s.fds) == 0
	case s.Ready != 0 || s.Fork != 0:
		f := p.forks[max(s.Ready, s.Fork)]
		if f == nil {
			closeAll(s.fds)
			return true
		}
		select {
		case f.ready <- s:
			return true
		default:
			return false
		}
	}
	select {
	case p.ready <- s:
		return len(s.fds) == 0
	default:
		return false
	}
}

// Dead implements driver.Zygote.
func (p *zygote) Dead() <-chan struct{} { return p.machine.dead }

// Usage implements driver.Zygote.
func (p *zygote) Usage() driver.Usage { return p.machine.Usage() }

// Destroy implements driver.Zygote.
func (p *zygote) Destroy(ctx context.Context) error { return p.machine.Destroy(ctx) }

// Fork implements driver.Zygote.
func (p *zygote) Fork(ctx context.Context, plan driver.Plan) (driver.Machine, *driver.Child, error) {
	d, h := p.driver, p.machine.host
	if err := h.roomForOne(); err != nil {
		return nil, nil, err
	}
	m := d.newMachine(plan, h)
	m.zygote = p
	m.spawn.below = &spawn.Below{Process: p.machine.child.Pidfd, Owner: p.uid}
	err := m.build(ctx, h.groupName(d.token, plan.ID))
	var f *driver.Child
	if err == nil {
		f, err = p.fork(ctx, m)
	}
	if err != nil {
		err = m.endedFor(err)
		if destroyErr := m.Destroy(context.WithoutCancel(ctx)); destroyErr != nil {
			err = errors.Join(err, destroyErr)
		}
		return nil, nil, createError(err)
	}
	failpoint.Hit("native.forked")
	return m, f, nil
}

// fork asks for a fork in the machine and waits until it is ready.
func (p *zygote) fork(ctx context.Context, m *machine) (*driver.Child, error) {
	pipes, err := newForkPipes(mount.Owner{UID: m.block.Base + sandbox.UID, GID: m.block.Base + sandbox.GID})
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
	fds = append(fds, m.entries...)
	f := &fork{ready: make(chan packet, 1), exited: make(chan driver.ChildExit, 1)}
	id, err := p.register(f)
	m.overdue.fork = id
	if err == nil {
		err = p.packet(encodePacket(0, id), fds...)
	}
	var s packet
	if err == nil {
		s, err = p.await(ctx, f)
	}
	if err == nil {
		err = m.listenToFork(s.fds)
	}
	if err != nil {
		p.abandon(id, f)
		pipes.closeOurs()
		return nil, err
	}
	return &driver.Child{Stdin: pipes.ours[0], Stdout: pipes.ours[1], Stderr: pipes.ours[2], PID: int(s.PID), Exited: f.exited}, nil
}

func (p *zygote) register(f *fork) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return 0, errZygoteGone
	}
	p.last++
	p.forks[p.last] = f
	return p.last, nil
}

// abandon forgets a fork that nobody waits for, also if it answers yet.
func (p *zygote) abandon(id int64, f *fork) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.forks, id)
	select {
	case s := <-f.ready:
		closeAll(s.fds)
	default:
	}
}

var errZygoteGone = &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the parent of forked interpreters has ended"}

// await waits for a fork. A zygote that answers nobody is ended, and its forks
// with it; one that only has much to do is not.
func (p *zygote) await(ctx context.Context, f *fork) (packet, error) {
	patience := time.NewTimer(forkTimeout)
	defer patience.Stop()
	select {
	case s := <-f.ready:
		return p.forked(s)
	case <-f.exited:
		select {
		case s := <-f.ready: // its last words
			return p.forked(s)
		default:
			return packet{}, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the fork ended before it was ready"}
		}
	case <-p.machine.dead:
		return packet{}, errZygoteGone
	case <-patience.C:
		if p.busy() {
			return packet{}, &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: "the parent of forked interpreters has too much to do"}
		}
		p.kill()
		return packet{}, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the parent of forked interpreters did not fork in time"}
	case <-ctx.Done():
		return packet{}, ctx.Err()
	}
}

// busy says whether the zygote has answered somebody lately.
func (p *zygote) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.heard) < forkTimeout
}

// forked is what came of a fork.
func (p *zygote) forked(s packet) (packet, error) {
	if s.Ready != 0 {
		return s, nil
	}
	closeAll(s.fds)
	p.mu.Lock()
	defer p.mu.Unlock()
	why := "it was killed"
	if s.call > 0 && s.call < int64(len(p.calls)) {
		why = sandbox.SafeText(p.calls[s.call], 300) + ": " + s.errno.Error()
	}
	return s, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "cannot fork the interpreter: " + why}
}

// listenToFork takes over the listener of the fork's filter.
func (m *machine) listenToFork(fds []int) error {
	want := 0
	if m.plan.Enforces(sandbox.FeatureSeccomp) && m.host.features.filter.listens {
		want = 1
	}
	if len(fds) != want {
		closeAll(fds)
		return fmt.Errorf("the fork sent %d descriptors, not %d", len(fds), want)
	}
	if want == 1 {
		var err error
		m.forkListener, err = startListener(fds[0])
		return err
	}
	return nil
}
