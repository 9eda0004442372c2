package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/memorylimit"
	"pinfold/internal/wire"
)

// restAfter is for how long counters that nobody reads stay open.
const restAfter = time.Second

// meter reads a machine's counters. It is safe for concurrent use.
type meter struct {
	machine *machine

	mu    sync.Mutex // guards what follows
	group *cgroup.Group
	shown shown
	base  unix.Statfs_t // the empty disk
	agent int64         // the agent's tasks
	tasks int64         // the kernel's mark of tasks, of those that made the container
	last  driver.Usage
	clock memorylimit.Clock // when it takes a reading by itself, see tick
	ended bool              // last is the final reading
	idle  *time.Timer       // closes the counters
}

// begin measures the empty disk.
func (t *meter) begin(m *machine) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machine, t.agent = m, wire.MaxTasks
	t.clock.Init(m.Plan.Limits.MemoryBytes, t.tick)
	t.idle = time.AfterFunc(restAfter, t.group.CloseCounters)
	if p, err := t.group.Peaks(); err == nil {
		t.tasks = p.TasksPeak
	}
	return unix.Statfs(m.disk(), &t.base)
}

func (m *machine) disk() string { return filepath.Join(m.dir, diskDir) }

// tick is a reading of the machine's own, with which it moves its memory limit.
func (t *meter) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.clock.Due() {
		_ = t.update() // the next one may succeed
	}
}

// sentToAgent says that something is asked of the machine. The caller may have the lock.
func (t *meter) sentToAgent(bytes int) {
	if t.mu.TryLock() { // who has it is reading the counters
		if !t.ended && t.clock.Sent(bytes) {
			_ = t.update() // as above
		}
		t.mu.Unlock()
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
	switch {
	case ctx.Err() != nil:
		return driver.Usage{}, context.Cause(ctx)
	case t.ended:
		return driver.Usage{}, driver.ErrEnded
	}
	if err := t.update(); err != nil {
		return driver.Usage{}, failed("read the sandbox's counters", err)
	}
	return t.last, nil
}

// lastTelling takes the last reading before the machine's end that tells anything, where
// there can be one.
func (t *meter) lastTelling() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.machine != nil {
		_ = t.update() // what could not be read stays as it was
	}
}

// final is the last reading.
func (t *meter) final() driver.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// end has the last reading stay.
func (t *meter) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.machine == nil {
		return
	}
	t.ended = true
	t.clock.End()
	t.peaks()
	t.idle.Stop()
	t.group.Close()
}

// BeginRun implements driver.RunMeter.
func (m *machine) BeginRun(ctx context.Context) (driver.Usage, error) {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	u, err := t.reading(ctx)
	if err != nil {
		return u, err
	}
	t.clock.Start()
	if t.group.BeginPeak() == nil {
		t.last.MemoryPeak = 0
	}
	return t.last, nil
}

// EndRun implements driver.RunMeter. The mark includes what the disk held at that time, at
// most its own peak.
func (m *machine) EndRun(ctx context.Context) (driver.Usage, error) {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	u, err := t.reading(ctx)
	if err != nil {
		return u, err
	}
	if peak, err := t.group.PeakSince(); err == nil {
		t.last.MemoryPeak = max(t.last.MemoryPeak, peak-t.last.DiskPeak)
	}
	return t.last, nil
}

// update reads everything, moves the memory limit and shows the guest what it uses. The
// lock is held.
func (t *meter) update() error {
	begun := time.Now()
	t.idle.Reset(restAfter)
	t.readDisk()
	c, err := t.group.Counters()
	if err != nil {
		return err
	}
	u := &t.last
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
	limits := t.machine.Plan.Limits
	if u.MemoryBytes > limits.MemoryBytes {
		// Clean page cache is charged too, but the kernel takes it back by itself.
		if s, err := t.group.Stats(); err == nil && s.Anon >= 0 {
			u.MemoryBytes = max(0, s.Anon+max(0, s.Shmem-u.DiskBytes)+max(0, s.Kernel))
		}
	}
	u.MemoryPeak = max(u.MemoryPeak, u.MemoryBytes)
	u.ProcessesPeak = max(u.ProcessesPeak, u.Processes)
	t.peaks()
	_ = t.limits().Move(t.group, u.DiskBytes) // the next reading tries again
	t.shown.write(u.CPUNanos, u.MemoryBytes, u.Processes)
	t.clock.Follow(begun, u.DiskBytes, u.CPUNanos)
	return nil
}

// peaks takes the kernel's own, while the group is there.
func (t *meter) peaks() {
	p, err := t.group.Peaks()
	if err != nil {
		return
	}
	u := &t.last
	if p.TasksPeak > t.tasks {
		u.ProcessesPeak = max(u.ProcessesPeak, p.TasksPeak-t.agent)
	}
	set(&u.ReadBytes, p.ReadBytes)
	set(&u.WrittenBytes, p.WrittenBytes)
}

// readDisk measures the one file system that holds every writable place.
func (t *meter) readDisk() {
	var now unix.Statfs_t
	if unix.Statfs(t.machine.disk(), &now) == nil && now.Type == t.base.Type {
		bytes := int64(t.base.Bfree-min(now.Bfree, t.base.Bfree)) * now.Bsize //nolint:gosec // sizes of a tmpfs
		inodes := int64(t.base.Ffree - min(now.Ffree, t.base.Ffree))          //nolint:gosec // as above
		t.last.SetDisk(bytes, inodes, now.Bfree == 0, now.Ffree == 0)
	}
}

func (t *meter) limits() memorylimit.Limits {
	l := t.machine.Plan.Limits
	return memorylimit.Limits{Memory: l.MemoryBytes, Disk: l.DiskBytes}
}

// countAgent counts the agent's threads, which are not the guest's: a directory of
// directories has one link for each and two more.
func (t *meter) countAgent() {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/task", t.machine.Agent.PID), &st) == nil && st.Nlink > 2 {
		t.agent = min(int64(st.Nlink)-2, wire.MaxTasks) //nolint:gosec // a number of threads
	}
}

// set stores a counter that could be read.
func set(to *int64, value int64) {
	if value >= 0 {
		*to = value
	}
}
