//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/memorylimit"
	"pinfold/internal/linux/proctree"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
)

// meter reads a machine's counters. It is safe for concurrent use.
type meter struct {
	machine *machine
	ending  atomic.Bool // Destroy has begun

	mu    sync.Mutex
	root  int // O_PATH descriptor of the sandbox's root, -1 when closed
	disk  memorylimit.Disk
	agent int64 // the agent's tasks
	last  driver.Usage
	clock memorylimit.Clock // when it takes a reading by itself, see tick
	open  bool              // the counters are, see openMeters
	fresh bool              // they were read lately
	ended bool              // last is the final reading
}

// begin takes the root's descriptor and measures the empty disk. It opens the
// counters as well: a machine that waits in a pool has them open when its
// program comes.
func (t *meter) begin(root int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root = root
	if err := t.disk.Begin(func(st *syscall.Statfs_t) error { return syscall.Fstatfs(t.root, st) }, 0); err != nil {
		return setupError("measure the sandbox's disk", err)
	}
	t.wakeUp()
	if g := t.machine.cgroup; g != nil {
		g.OpenCounters()
		if t.machine.host.can(cgroup.Memory) {
			t.clock.Init(t.machine.plan.Limits.MemoryBytes, t.tick)
		}
	}
	return nil
}

// tick is a reading of the machine's own, with which it moves its memory limit. It leaves
// no counters open that nobody else had open, but where the guest works; and one machine
// at a time takes descriptors for it, so that many idle ones do not take them from who
// makes another.
func (t *meter) tick() {
	t.machine.host.ticks.Lock()
	defer t.machine.host.ticks.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended || !t.clock.Due():
	case t.ending.Load():
		t.clock.Stop()
	default:
		open := t.open
		_ = t.update(false) // the next one may succeed
		if !open && !t.clock.Busy() {
			t.rest()
		}
	}
}

// sentToAgent says that something is asked of the machine. The lock is held.
func (t *meter) sentToAgent(bytes int) {
	if !t.ended && t.clock.Sent(bytes) {
		_ = t.update(false) // as above
	}
}

// read returns a fresh reading.
func (t *meter) read(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reading(ctx)
}

// reading is read, by who holds the lock.
func (t *meter) reading(ctx context.Context) (driver.Usage, error) {
	if err := t.readable(ctx); err != nil {
		return driver.Usage{}, err
	}
	if err := t.update(false); err != nil {
		return driver.Usage{}, setupError("read the sandbox's counters", err)
	}
	return t.snapshot(), nil
}

// readable says why there can be no reading, or nothing.
func (t *meter) readable(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.ended:
		return driver.ErrEnded
	}
	return nil
}

// final is the last reading.
func (t *meter) final() driver.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot()
}

// end has the reading that was taken last stay the last one. The lock is held.
func (t *meter) end() {
	t.ended = true
	t.clock.End()
}

// finish takes the last reading, after the last process has ended.
func (t *meter) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		_ = t.update(true) // what could not be read stays as it was
		t.end()
	}
}

// discard has the reading that was taken last stay the last one.
func (t *meter) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
}

func (t *meter) verdict() (oomKills int64, ending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.OOMKills, t.ending.Load()
}

// BeginRun implements driver.RunMeter. A fork that waits has used nothing but CPU
// time.
func (m *machine) BeginRun(ctx context.Context) (driver.Usage, error) {
	m.watchChild()
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.cgroup == nil {
		return t.reading(ctx)
	}
	if err := t.readable(ctx); err != nil {
		return driver.Usage{}, err
	}
	t.wakeUp()
	t.showTime()
	var err error
	if m.zygote == nil || !m.host.can(cgroup.CPUAcct) {
		err = t.update(false)
	} else {
		var cpu int64
		if cpu, err = m.cgroup.CPU(); err == nil {
			set(&t.last.CPUNanos, cpu)
		}
	}
	if err != nil {
		return driver.Usage{}, setupError("read the sandbox's counters", err)
	}
	t.clock.Start()
	if m.cgroup.BeginPeak() == nil {
		t.last.MemoryPeak = 0
	}
	return t.snapshot(), nil
}

// EndRun implements driver.RunMeter. The mark includes what the disk held at
// that time, at most its own peak.
func (m *machine) EndRun(ctx context.Context) (driver.Usage, error) {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	u, err := t.reading(ctx)
	if m.cgroup == nil || err != nil {
		return u, err
	}
	if peak, err := m.cgroup.PeakSince(); err == nil {
		t.last.MemoryPeak = max(t.last.MemoryPeak, peak-t.last.DiskPeak)
	}
	u.MemoryPeak = t.last.MemoryPeak
	return u, nil
}

// endedFor is the memory limit, where that has ended something in the machine, and
// err otherwise.
func (m *machine) endedFor(err error) error {
	if _, _ = m.Usage(context.Background()); m.meter.final().OOMKills > 0 { // it may have ended
		return zygote.TooLittleMemory(m.plan.Limits.MemoryBytes)
	}
	return err
}

func (t *meter) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	t.rest()
	if t.root >= 0 {
		_ = unix.Close(t.root)
		t.root = -1
	}
}

// snapshot copies the reading and adds what the system-call filter reported.
func (t *meter) snapshot() driver.Usage {
	u := t.last
	if l := t.machine.listener; l != nil {
		u.Denied, u.Killed = l.report()
	}
	if l := t.machine.childListener; l != nil { // the agent refuses itself nothing
		u.Denied, u.Killed = l.report()
	}
	return u
}

// update reads everything, moves the memory limit and shows the guest what it uses. The
// lock is held.
func (t *meter) update(final bool) (err error) {
	begun := time.Now()
	t.wakeUp()
	t.readDisk()
	if t.machine.cgroup != nil {
		err = t.readCgroup(final)
	}
	if !final && t.machine.child != nil {
		t.fillGaps(t.machine.child.PID)
	}
	u := &t.last
	u.MemoryPeak = max(u.MemoryPeak, u.MemoryBytes)
	u.ProcessesPeak = max(u.ProcessesPeak, u.Processes)
	if !final {
		t.show()
		t.clock.Follow(begun, u.DiskBytes, u.CPUNanos)
	}
	return err
}

// readDisk measures the one file system that holds every writable place.
func (t *meter) readDisk() {
	if held, ok := t.disk.Look(); ok {
		t.last.SetDisk(held.Bytes, held.Inodes, held.Full, held.InodesFull)
	}
}

func (t *meter) limits() memorylimit.Limits {
	l := t.machine.plan.Limits
	return memorylimit.Limits{Memory: l.MemoryBytes, Disk: l.DiskBytes}
}

// readCgroup takes the group's counters. Files on the sandbox's disk are
// charged as memory by the kernel, and taken off here: they count as disk.
func (t *meter) readCgroup(final bool) error {
	g, u := t.machine.cgroup, &t.last
	c, err := g.Counters()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		t.machine.host.meters.sweep(true) // others can do without theirs
		c, err = g.Counters()
	}
	if err != nil {
		return err
	}
	set(&u.CPUNanos, c.CPUNanos)
	if c.OOMKills > u.OOMKills {
		t.readDisk() // what it held then, at least
		u.MemoryLate = u.MemoryLate || t.disk.Late(t.limits(), u.DiskBytes)
	}
	set(&u.OOMKills, c.OOMKills)
	set(&u.ProcessesDenied, c.ForksRefused)
	t.countAgent()
	if c.Tasks >= 0 {
		u.Processes = max(0, c.Tasks-t.agent)
	}
	if c.MemoryBytes >= 0 {
		u.MemoryBytes = max(0, c.MemoryBytes-u.DiskBytes)
	}
	if limit := t.machine.plan.Limits.MemoryBytes; !final && u.MemoryBytes > limit {
		// Clean page cache is charged too, but the kernel takes it back by
		// itself; it is no reason to end a program. Neither is what was written
		// since the disk was looked at.
		if s, err := g.Stats(); err == nil && s.Anon >= 0 {
			t.readDisk()
			u.MemoryBytes = max(0, s.Anon+max(0, s.Shmem-u.DiskBytes)+max(0, s.Kernel))
		}
	}
	if final {
		t.readPeaks(g)
		return nil
	}
	_ = t.disk.Follow(g, t.limits(), u.DiskBytes) // the next reading tries again
	return nil
}

// countAgent counts the agent's threads, which are the sandbox's and not the
// guest's: a directory of directories has one link for each and two more.
func (t *meter) countAgent() {
	var st unix.Stat_t
	if t.machine.child != nil && unix.Stat(fmt.Sprintf("/proc/%d/task", t.machine.child.PID), &st) == nil && st.Nlink > 2 {
		t.agent = min(int64(st.Nlink)-2, wire.MaxTasks) //nolint:gosec // a number of threads
	}
}

// readPeaks takes the kernel's high-water marks.
func (t *meter) readPeaks(g *cgroup.Group) {
	s, err := g.Peaks()
	if err != nil {
		return
	}
	u := &t.last
	if peak, err := g.PeakSince(); err == nil {
		u.MemoryPeak = max(u.MemoryPeak, peak-u.DiskPeak)
	}
	if s.TasksPeak >= 0 {
		u.ProcessesPeak = max(u.ProcessesPeak, s.TasksPeak-t.agent)
	}
	set(&u.ReadBytes, s.ReadBytes)
	set(&u.WrittenBytes, s.WrittenBytes)
}

// set stores a counter that could be read.
func set(to *int64, value int64) {
	if value >= 0 {
		*to = value
	}
}

// fillGaps walks the process tree for what no cgroup counts.
func (t *meter) fillGaps(pid int) {
	h, u := t.machine.host, &t.last
	cpu, memory, tasks := !h.can(cgroup.CPUAcct), !h.can(cgroup.Memory), !h.can(cgroup.Pids)
	if !cpu && !memory && !tasks {
		return
	}
	tree := proctree.Read(pid)
	if cpu {
		u.CPUNanos = max(u.CPUNanos, tree.CPUNanos)
	}
	limits := t.machine.plan.Limits
	if memory {
		u.MemoryBytes = tree.MemoryBytes
		if u.MemoryBytes > limits.MemoryBytes/2 { // else it is not worth the work
			u.MemoryBytes = min(u.MemoryBytes, proctree.Memory(pid, u.DiskBytes))
		}
	}
	if tasks {
		u.Processes = tree.Tasks
		// RLIMIT_NPROC counts no refusals. It is set a little above the limit,
		// so that a program that goes beyond it can be told from one that just
		// keeps to it. One that was refused and has ended since has left only
		// its children to count.
		u.ProcessesFull = u.ProcessesFull || u.Processes > limits.Processes-limits.Processes/4
		if u.Processes > limits.Processes {
			u.ProcessesDenied = max(1, u.ProcessesDenied)
		}
	}
}

// EachTask implements driver.TaskMeter.
func (m *machine) EachTask(visit func(task int, cpu, system int64)) {
	var pids []int
	if m.cgroup != nil {
		pids, _ = m.cgroup.Procs()
	} else {
		for _, p := range proctree.Below(m.child.PID) {
			pids = append(pids, p.PID)
		}
	}
	proctree.EachTask(slices.DeleteFunc(pids, func(pid int) bool { return pid == m.child.PID }), visit)
}
