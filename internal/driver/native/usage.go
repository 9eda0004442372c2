//go:build linux

package native

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/proctree"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
)

// The kernel charges files on a tmpfs as memory, so the memory limit follows
// what the disk holds, in steps of memoryStep, and runs ahead of a program that
// writes by as much as it has written, at most memoryAhead.
const (
	memoryStep  = 1 << 20
	memoryAhead = 64 << 20
)

// meter reads a machine's counters. It is safe for concurrent use.
type meter struct {
	machine *machine
	ending  atomic.Bool // Destroy has begun

	mu    sync.Mutex
	root  int // O_PATH descriptor of the sandbox's root, -1 when closed
	base  unix.Statfs_t
	limit int64 // the memory limit in force
	agent int64 // the agent's tasks
	last  driver.Usage
	open  bool // the counters are, see openMeters
	fresh bool // they were read lately
	ended bool // last is the final reading
}

// begin takes the root's descriptor and measures the empty disk. It opens the
// counters as well: a machine that waits in a pool has them open when its
// program comes.
func (t *meter) begin(root int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root = root
	if err := unix.Fstatfs(root, &t.base); err != nil {
		return setupError("measure the sandbox's disk", err)
	}
	t.wakeUp()
	if g := t.machine.cgroup; g != nil {
		g.OpenCounters()
	}
	return nil
}

// read returns a fresh reading, or the last one when the machine has ended. It
// also moves the memory limit by what the disk holds.
func (t *meter) read() driver.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reading()
}

// reading is read, by who holds the lock.
func (t *meter) reading() driver.Usage {
	if !t.ended {
		t.update(false)
	}
	return t.snapshot()
}

// finish takes the last reading, after the last process has ended.
func (t *meter) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.update(true)
		t.ended = true
	}
}

// discard has the reading that was taken last stay the last one.
func (t *meter) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

func (t *meter) verdict() (oomKills int64, ending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.OOMKills, t.ending.Load()
}

// BeginRun implements driver.RunMeter. A fork that waits has used nothing but CPU
// time.
func (m *machine) BeginRun() driver.Usage {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || m.cgroup == nil {
		return t.reading()
	}
	t.wakeUp()
	t.showTime()
	if m.zygote == nil || !m.host.can(cgroup.CPUAcct) {
		t.update(false)
	} else if cpu, err := m.cgroup.CPU(); err == nil {
		set(&t.last.CPUNanos, cpu)
	}
	if m.cgroup.BeginPeak() == nil {
		t.last.MemoryPeak = 0
	}
	return t.snapshot()
}

// EndRun implements driver.RunMeter. The mark includes what the disk held at
// that time, at most its own peak.
func (m *machine) EndRun() driver.Usage {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.reading()
	if m.cgroup == nil || t.ended {
		return u
	}
	if peak, err := m.cgroup.PeakSince(); err == nil {
		t.last.MemoryPeak = max(t.last.MemoryPeak, peak-t.last.DiskPeak)
	}
	u.MemoryPeak = t.last.MemoryPeak
	return u
}

// endedFor is the memory limit, where that has ended something in the machine, and
// err otherwise.
func (m *machine) endedFor(err error) error {
	if m.Usage().OOMKills > 0 {
		return zygote.TooLittleMemory(m.plan.Limits.MemoryBytes)
	}
	return err
}

func (t *meter) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
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

func (t *meter) update(final bool) {
	t.wakeUp()
	t.readDisk()
	if t.machine.cgroup != nil {
		t.readCgroup(final)
	}
	if !final && t.machine.child != nil {
		t.fillGaps(t.machine.child.PID)
	}
	u := &t.last
	u.MemoryPeak = max(u.MemoryPeak, u.MemoryBytes)
	u.ProcessesPeak = max(u.ProcessesPeak, u.Processes)
	if !final {
		t.show()
	}
}

// readDisk measures the one file system that holds every writable place.
func (t *meter) readDisk() {
	if t.root < 0 {
		return
	}
	var now unix.Statfs_t
	if unix.Fstatfs(t.root, &now) != nil {
		return
	}
	u := &t.last
	u.DiskBytes = int64(t.base.Bfree-min(now.Bfree, t.base.Bfree)) * now.Bsize //nolint:gosec // sizes of a tmpfs
	u.Inodes = int64(t.base.Ffree - min(now.Ffree, t.base.Ffree))              //nolint:gosec // as above
	u.DiskPeak = max(u.DiskPeak, u.DiskBytes)
	u.InodesPeak = max(u.InodesPeak, u.Inodes)
	u.DiskFull = u.DiskFull || now.Bfree == 0
	u.InodesFull = u.InodesFull || now.Ffree == 0
}

// readCgroup takes the group's counters. Files on the sandbox's disk are
// charged as memory by the kernel, and taken off here: they count as disk.
func (t *meter) readCgroup(final bool) {
	g, u := t.machine.cgroup, &t.last
	c, err := g.Counters()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		t.machine.host.meters.sweep(true) // others can do without theirs
		c, err = g.Counters()
	}
	if err != nil {
		return
	}
	set(&u.CPUNanos, c.CPUNanos)
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
		// itself; it is no reason to end a program.
		if s, err := g.Stats(); err == nil && s.Anon >= 0 {
			u.MemoryBytes = max(0, s.Anon+max(0, s.Shmem-u.DiskBytes)+max(0, s.Kernel))
		}
	}
	if final {
		t.readPeaks(g)
		return
	}
	t.moveMemoryLimit()
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

// moveMemoryLimit keeps the kernel's limit at the memory limit plus what the
// disk holds, so that a full disk is a full disk and not a lack of memory. A
// sandbox never has more than the memory and the disk limit together.
func (t *meter) moveMemoryLimit() {
	l := t.machine.plan.Limits
	held := t.last.DiskBytes / memoryStep * memoryStep
	limit := l.MemoryBytes + min(l.DiskBytes, held+min(held, memoryAhead))
	// Lowering the limit below what is in use by the time of the write would
	// make the kernel kill; so it is lowered late and not to the last byte.
	if limit < t.limit && limit+2*memoryAhead > t.limit {
		return
	}
	if limit < t.limit {
		limit += memoryAhead
	}
	if t.machine.cgroup.SetMemoryLimit(limit) == nil {
		t.limit = limit
	}
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
