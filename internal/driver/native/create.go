//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/linux/userns"
	"pinfold/sandbox"
)

// cpuPeriodUS is the period over which limits.cpus is averaged.
const cpuPeriodUS = 100_000

// Create makes the machine.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	h, err := d.prepare()
	if err != nil {
		return nil, err
	}
	if err := h.claim(d); err != nil {
		return nil, err
	}
	failpoint.Hit("native.claimed")
	if err := h.roomForOne(); err != nil {
		return nil, err
	}
	m := d.newMachine(plan, h)
	if err := m.build(ctx, h.lock.Group(plan.ID)); err != nil {
		if destroyErr := m.Destroy(context.WithoutCancel(ctx)); destroyErr != nil {
			err = errors.Join(err, destroyErr)
		}
		return nil, createError(err)
	}
	failpoint.Hit("native.created")
	return m, nil
}

// createError says which step of making a sandbox failed.
func createError(err error) error {
	e := failure.Of("make the sandbox", err)
	if step := new(spawn.StepError); e.Code == sandbox.CodeSetupFailed && errors.As(e.Err, &step) {
		return explainStep(step.Step, e)
	}
	return e
}

// roomForOne is failure.NoDescriptors once descriptors that are not needed were given back.
func (h *host) roomForOne() error {
	if failure.NoDescriptors() == nil {
		return nil
	}
	h.meters.sweep(true)
	return failure.NoDescriptors()
}

// build makes everything. What it has made is in m, for Destroy.
func (m *machine) build(ctx context.Context, name string) error {
	h := m.host
	err := m.shown.enter()
	if err != nil {
		return err
	}
	m.entered = true
	if h.ids.root {
		if m.block, err = h.ids.pool.Lease(); err != nil {
			return err
		}
		m.spawn.leased()
	}
	failpoint.Hit("native.leased")
	if m.cgroup, err = m.newGroup(name); err != nil {
		return err
	}
	failpoint.Hit("native.cgroup")
	ours, theirs, err := unixpair.New(m.spawn.socket)
	if err != nil {
		return err
	}
	m.conn = ours
	child, err := m.start(theirs)
	if err != nil {
		return err
	}
	m.child = child
	failpoint.Hit("native.spawned")
	return m.release(ctx)
}

// newGroup makes the sandbox's cgroup, as far as the plan has one.
func (m *machine) newGroup(name string) (*cgroup.Group, error) {
	h, plan := m.host, m.plan
	var l cgroup.Limits
	if plan.Enforces(sandbox.FeatureMemory) {
		l.Memory, l.KillOne = plan.Limits.MemoryBytes, plan.KillOne
	}
	if m.limitsTasks() {
		l.Pids = plan.Limits.Processes + m.ownTasks()
	}
	if plan.Enforces(sandbox.FeatureCPUs) {
		l.CPUPeriodUS, l.CPUQuotaUS = cpuPeriodUS, plan.Limits.CPUQuota(cpuPeriodUS)
	}
	if l == (cgroup.Limits{}) {
		return nil, nil
	}
	return h.hierarchy.New(name, l)
}

// start makes the process, which then waits for release.
func (m *machine) start(theirs *os.File) (*spawn.Child, error) {
	h := m.host
	defer theirs.Close() //nolint:errcheck // the child has its own
	n := m.initSpec(int(theirs.Fd()))
	err := m.useInitStub(n)
	if err != nil {
		return nil, err
	}
	if err := m.sealModes(n); err != nil {
		return nil, err
	}
	if n.trees, err = m.openMounts(); err != nil {
		return nil, err
	}
	defer closeFiles(n.trees)
	if err := m.openRoot(n); err != nil {
		return nil, err
	}
	defer closeFiles([]*os.File{n.tmpfs})
	clone := spawn.Clone{Flags: m.spawn.namespaces, Below: m.spawn.below, CopyLow: true}
	if m.shown.layers.Under != nil && m.spawn.below != nil {
		clone.Dir = int(m.shown.layers.Under.Fd())
	}
	if err := m.stand(n, &clone); err != nil {
		return nil, err
	}
	if m.cgroup != nil {
		if m.entries, err = m.cgroup.JoinFiles(); err != nil {
			return nil, err
		}
		if m.zygote == nil {
			defer m.closeEntries()
		}
		n.join = m.entries
		dir, err := m.cgroup.OpenDir()
		if err != nil {
			return nil, err
		}
		if dir != nil {
			defer dir.Close() //nolint:errcheck // only the way in
			clone.Cgroup = int(dir.Fd())
		}
	}
	child, err := m.spawn.program(n).Start(clone)
	runtime.KeepAlive(h.agent)
	return child, err
}

// stand puts the sandbox on prepared mounts, where it has one.
func (m *machine) stand(n *initSpec, clone *spawn.Clone) (err error) {
	h := m.host
	state := m.shown.mounts.look()
	n.nested = state.nested
	if n.layered && !h.layered(state) { // it was planned before that was mounted
		return &sandbox.Error{
			Code:    sandbox.CodeSetupFailed,
			Message: fmt.Sprintf("cannot make the sandbox: meanwhile a single file was mounted at %s, of which the kernel makes no overlay", sandbox.SafeText(state.file, 200)),
			Hint:    "try again",
		}
	}
	need := n.layered && len(state.nested) > 0 && !m.isZygote()
	m.counted = true
	if m.prepared, err = m.shown.prepared.take(state, need); err != nil {
		return err
	}
	if m.prepared != nil && !m.isZygote() && n.layered == h.layered(state) {
		n.onPrepared, clone.Mounts = true, int(m.prepared.namespace.Fd())
	}
	return nil
}

// closeEntries closes the ways into the cgroup, after everybody has entered.
func (m *machine) closeEntries() {
	closeAll(m.entries)
	m.entries = nil
}

// initSpec describes the sandbox for the table of system calls.
func (m *machine) initSpec(socket int) *initSpec {
	h := m.host
	n := &initSpec{
		template: m.plan.Inside(), limits: m.plan.Limits, mounts: m.plan.Mounts, hostname: m.plan.Hostname, skeleton: m.shown.skeleton, layers: m.shown.layers.Files,
		socket: socket, agent: int(h.agent.Fd()), agentOnDisk: h.agentOnDisk,
		switchUser: m.plan.SwitchUser,
		uid:        m.plan.User.UID, gid: m.plan.User.GID,
		forked:  m.zygote != nil,
		layered: m.plan.Enforces(sandbox.FeatureFilesOwn), ownDevices: m.plan.Enforces(sandbox.FeatureDevicesOwn),
		copies: h.copies.of(m.plan.Template),
		timeNS: m.plan.Enforces(sandbox.FeatureTimeNS),
		quotas: h.features.quotas, doors: m.plan.Doors,
	}
	if h.agentDoors {
		n.doors, n.agentDoors = nil, len(m.plan.Doors) > 0
	}
	if m.plan.Authority != nil {
		n.skeleton = 0 // it has files more
	}
	if !h.can(cgroup.Pids) {
		n.processes = m.plan.Limits.Processes
	}
	m.inside = h.newInside(m.seen, n.timeNS)
	n.layout, n.own = &m.inside.layout, m.inside.files(h.ids.root)
	if m.plan.Enforces(sandbox.FeatureLandlock) {
		n.landlock = h.features.landlock
	}
	if m.plan.Enforces(sandbox.FeatureSeccomp) {
		n.filter = h.features.filter
	}
	return n
}

// sealModes makes the filter one that lets the sandbox leave nothing set-user-id where
// it may write to the host's disk.
func (m *machine) sealModes(n *initSpec) (err error) {
	writable := slices.ContainsFunc(n.mounts, func(m sandbox.Mount) bool { return m.Writable })
	if !writable || n.filter == nil {
		return nil
	}
	n.filter, err = n.filter.withMounts()
	n.agentArgs = []string{sealModes}
	return err
}

// sealModes is the agent's SealModes.
const sealModes = "seal-modes"

// release gives the process its ids, lets it go on, and waits until it has
// become the agent. A step that fails ends it; the error names the step.
func (m *machine) release(ctx context.Context) error {
	child := m.child
	stop := context.AfterFunc(ctx, func() { _ = child.Kill() })
	defer stop()
	score, mapErr := openOOMScore(child.PID)
	if mapErr == nil {
		defer score.Close() //nolint:errcheck // written in one call
		mapErr = m.mapIDs(ctx)
	}
	if mapErr == nil {
		_, mapErr = m.conn.Write([]byte{1})
	}
	if mapErr != nil {
		_ = m.child.Kill()
	}
	fds, recvErr := m.conn.ReceiveDescriptors()
	if err := child.WaitExec(); err != nil {
		m.child = nil // it has been waited for
		closeAll(fds)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if mapErr != nil {
			return fmt.Errorf("map user ids: %w", mapErr)
		}
		return err
	}
	m.watch()
	// Not before the exec: until then the process shares our memory, and the
	// kernel gives all that share it the same score, after a look at every
	// process of the host.
	if _, err := score.WriteString("500"); err != nil && !errors.Is(err, unix.ESRCH) {
		closeAll(fds)
		return fmt.Errorf("let the host's memory come first: %w", err)
	}
	if recvErr != nil {
		closeAll(fds)
		return fmt.Errorf("receive the sandbox's descriptors: %w", recvErr)
	}
	return m.adopt(fds)
}

// isZygote says that the machine is a zygote's, in no user namespace of its own.
func (m *machine) isZygote() bool { return m.spawn.namespaces&unix.CLONE_NEWUSER == 0 }

// openOOMScore opens the file that says how soon the kernel ends a process when
// the host runs out of memory. Raising the score needs no privilege, but the
// file is an ordinary user's only until the process changes its user.
func openOOMScore(pid int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), os.O_WRONLY, 0)
}

func (m *machine) mapIDs(ctx context.Context) error {
	switch {
	case m.isZygote():
		return nil
	case m.block != nil:
		return userns.MapBlock(m.child.PID, userns.Range{First: m.block.Base, Count: idblock.Size})
	case m.plan.SwitchUser:
		return m.host.ids.sub.Map(ctx, m.child.PID)
	}
	return userns.MapSelf(m.child.PID, m.plan.User.UID, m.plan.User.GID)
}

// adopt takes over the descriptors that the process sent: its root, and the
// listener of its system-call filter.
func (m *machine) adopt(fds []int) error {
	doors := fds[max(0, len(fds)-m.doorCount()):]
	fds = fds[:len(fds)-len(doors)]
	m.doors = doors
	want := 1
	if m.isZygote() {
		want = 1
	} else if m.plan.Enforces(sandbox.FeatureSeccomp) && m.host.features.filter.listens {
		want = 2
	}
	if len(fds) != want {
		closeAll(fds)
		return fmt.Errorf("the sandbox sent %d descriptors, not %d", len(fds), want)
	}
	if err := m.meter.begin(fds[0]); err != nil {
		closeAll(fds[1:])
		return err
	}
	if want == 2 {
		var err error
		m.listener, err = startListener(fds[1])
		return err
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// can says whether a cgroup controller is ours to use.
func (h *host) can(c cgroup.Controller) bool {
	return h.hierarchy.Support(c).Answer == cgroup.Yes
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
