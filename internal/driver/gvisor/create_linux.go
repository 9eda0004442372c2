package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/image"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/layers"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/linux/userns"
	"pinfold/sandbox"
)

// local is what a driver has on this host.
type local struct {
	once   sync.Once
	common *common
	err    error
	tries  atomic.Int64
}

// common is what all machines have in common.
type common struct {
	hierarchy *cgroup.Hierarchy
	pool      *idblock.Pool
	agent     *os.File // sealed
	facts     image.HostFacts
	owner     string // begins the names of our control groups
}

// prepare makes it, once.
func (d *Driver) prepare() (*common, error) {
	d.local.once.Do(func() { d.local.common, d.local.err = d.open() })
	return d.local.common, d.local.err
}

func (d *Driver) open() (*common, error) {
	l := &common{}
	var err error
	if l.hierarchy, err = cgroup.Detect(cgroup.Options{}); err != nil {
		return nil, failure.Of("look for cgroups", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, failure.Of("ask for the kernel's release", err)
	}
	l.facts = image.LookAtHost(os.DirFS("/"), runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]))
	if l.owner, err = ownName(); err != nil {
		return nil, failure.Of("name this process", err)
	}
	program, err := d.o.Agent()
	if err != nil {
		return nil, err
	}
	if l.agent, err = memfd.Sealed("pinfold-agent", program); err != nil {
		return nil, err
	}
	if l.pool, err = idblock.New(d.blocks(), idblock.NoProcess); err != nil {
		_ = l.agent.Close()
		return nil, failure.Of("open the file of id blocks", err)
	}
	return l, nil
}

func (d *Driver) blocks() string { return cmp.Or(d.o.Blocks, "/run/pinfold/blocks") }

// Close gives back what the driver holds. Machines must be gone before.
func (d *Driver) Close() error {
	d.local.once.Do(func() { d.local.err = failure.Of("use the driver", os.ErrClosed) })
	l := d.local.common
	if l == nil {
		return nil
	}
	d.local.common, d.local.err = nil, failure.Of("use the driver", os.ErrClosed)
	return errors.Join(l.hierarchy.Close(), l.pool.Close(), l.agent.Close())
}

// Create makes the machine.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	if e := usableHere(); e != nil {
		return nil, e
	}
	if len(plan.Mounts) > plan.Kept {
		return nil, failure.Of("show directories of the host", errors.New("the gvisor driver does not do that yet")).
			WithAdvice(sandbox.Advise("copy in what is needed, or %s", sandbox.Set("driver", "native")))
	}
	common, err := d.prepare()
	if err != nil {
		return nil, err
	}
	p := d.prove(ctx)
	if p.refusal != nil {
		return nil, p.refusal
	}
	return d.create(ctx, plan, common, p.program)
}

// create makes a machine with a runsc, and leaves nothing where that fails.
func (d *Driver) create(ctx context.Context, plan driver.Plan, common *common, p program) (driver.Machine, error) {
	if err := failure.NoDescriptors(); err != nil {
		return nil, err
	}
	m := &machine{plan: plan, common: common, dead: make(chan struct{})}
	if err := m.build(ctx, p); err != nil {
		if gone := m.Destroy(context.WithoutCancel(ctx)); gone != nil {
			err = errors.Join(err, gone)
		}
		return nil, failure.Of("make the sandbox", err)
	}
	return m, nil
}

// build makes everything. What it has made is in m, for Destroy.
func (m *machine) build(ctx context.Context, p program) (err error) {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	runsc, now, refusal := open(p.path)
	if refusal != nil {
		return refusal
	}
	defer runsc.Close() //nolint:errcheck // only read
	if now.identity != p.identity {
		return failure.Of("use "+sandbox.SafeText(p.path, 200), errors.New("it was replaced a moment ago")).WithHint("try again")
	}
	if m.layers, err = layers.Take(m.plan.Template); err != nil {
		return err
	}
	defer m.layers.CloseFiles()
	if m.block, err = m.common.pool.Lease(); err != nil {
		return err
	}
	failpoint.Hit("gvisor.leased")
	if err := m.newGroup(); err != nil {
		return failure.Of("make the sandbox's control group", err)
	}
	failpoint.Hit("gvisor.cgroup")
	log, err := newLog()
	if err != nil {
		return failure.Of("make an anonymous file", err)
	}
	defer log.Close() //nolint:errcheck // runsc has its own
	if err := m.start(runsc, log); err != nil {
		return err
	}
	failpoint.Hit("gvisor.spawned")
	if err := m.release(ctx, log); err != nil {
		return err
	}
	failpoint.Hit("gvisor.ready")
	return m.measure()
}

// ownTasks is how many threads the sentry and its helpers may have at most, for so many
// tasks of the guest: beyond that they fail. It is far more than they were seen to take.
func ownTasks(guest int64) int64 { return 512 + 8*guest }

// startMemory is what they may take until the agent is ready, in bytes: then it is measured.
const startMemory = 256 << 20

// newGroup makes the machine's control group.
func (m *machine) newGroup() (err error) {
	l := cgroup.Limits{KillOne: m.plan.KillOne}
	if m.plan.Enforces(sandbox.FeatureMemory) {
		l.Memory = m.plan.Limits.MemoryBytes + startMemory
	}
	if m.common.hierarchy.Support(cgroup.Pids).Answer == cgroup.Yes {
		l.Pids = ownTasks(m.plan.Limits.Processes)
	}
	m.group, err = m.common.hierarchy.New(m.common.owner+m.plan.ID, l)
	return err
}

// start makes the process, which then waits for release.
func (m *machine) start(runsc, log *os.File) error {
	ours, theirs, err := unixpair.New(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	m.conn = ours
	defer theirs.Close() //nolint:errcheck // the child has its own
	kept, err := m.openKept()
	if err != nil {
		return err
	}
	defer closeFiles(kept)
	s := &stage{
		template: m.plan.Inside(), plan: m.plan, layers: m.layers.Files,
		kept: kept, socket: int(theirs.Fd()), runsc: int(runsc.Fd()), agent: int(m.common.agent.Fd()), log: int(log.Fd()),
	}
	if s.config, err = config(m.plan); err != nil {
		return err
	}
	m.meter.Shown = container.NewShown(m.common.facts, m.plan.Limits, "", true)
	s.shown = slices.DeleteFunc(m.meter.Shown.Files(), func(f image.File) bool { return !shows(f.Path) })
	if s.join, err = m.group.JoinFiles(); err != nil {
		return err
	}
	defer closeAll(s.join)
	clone := spawn.Clone{Flags: namespaces, CopyLow: true}
	dir, err := m.group.OpenDir()
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close() //nolint:errcheck // only the way in
		clone.Cgroup = int(dir.Fd())
	}
	m.child, err = s.program().Start(clone)
	runtime.KeepAlive(m.common.agent)
	return err
}

// openKept opens the views of what the engine keeps: the way there is closed to the
// machine's users.
func (m *machine) openKept() ([]*os.File, error) {
	var all []*os.File
	for _, want := range m.plan.Mounts {
		view, err := mount.Plain(want.Host, mount.ReadOnly|mount.NoSuid|mount.NoDev)
		if err != nil {
			closeFiles(all)
			return nil, failure.Of("show "+sandbox.SafeText(want.Guest, 200), err)
		}
		all = append(all, view)
	}
	return all, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// startTimeout bounds the start of a sentry, which takes a tenth of a second.
const startTimeout = 30 * time.Second

// release gives the process its ids, lets it go on, and waits until it has become runsc and
// the agent which that starts is ready. A step that fails ends it; the error names the step.
func (m *machine) release(ctx context.Context, log *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	child := m.child
	stop := context.AfterFunc(ctx, func() { _ = child.Kill() })
	defer stop()
	score, err := os.OpenFile(fmt.Sprintf("/proc/%d/oom_score_adj", child.PID), os.O_WRONLY, 0)
	if err == nil {
		defer score.Close() //nolint:errcheck // written in one call
		err = userns.MapBlock(child.PID, userns.Range{First: m.block.Base, Count: idblock.Size})
	}
	if err == nil {
		_, err = m.conn.Write([]byte{1})
	}
	if err != nil {
		_ = child.Kill()
	}
	if execErr := child.WaitExec(); execErr != nil {
		m.child = nil // it has been waited for
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return cmp.Or(err, execErr)
	}
	m.watch()
	if _, err := score.WriteString("500"); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("let the host's memory come first: %w", err)
	}
	if err := m.greet(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("start the agent in the sandbox: %w%s", err, saidBy(log))
	}
	return nil
}

// greet waits for the agent's word that it is there.
func (m *machine) greet() error {
	if err := m.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(m.conn, answer); err != nil {
		return err
	}
	if answer[0] != announced {
		return errors.New("the agent does not say that it is ready")
	}
	return m.conn.SetDeadline(time.Time{})
}

// newLog is what runsc and the agent write to standard error. Its pages are charged to the
// machine.
func newLog() (*os.File, error) {
	fd, err := unix.MemfdCreate("runsc-log", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "runsc-log"), nil //nolint:gosec // a descriptor
}

// saidBy is the end of what was written to the log.
func saidBy(log *os.File) string {
	const most = 600
	info, err := log.Stat()
	if err != nil || info.Size() == 0 {
		return ""
	}
	b := make([]byte, min(info.Size(), most))
	n, _ := log.ReadAt(b, info.Size()-int64(len(b)))
	return "; runsc says: " + sandbox.SafeText(string(b[:n]), most)
}
