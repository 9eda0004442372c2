package container

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/memorylimit"
	"pinfold/sandbox"
)

// restAfter is for how long counters that nobody reads stay open.
const restAfter = time.Second

// Meter reads a machine's counters, moves its memory limit by what its disk holds, and shows
// its programs what they use. It is safe for concurrent use. Its exported fields are set
// before Begin.
type Meter struct {
	Group  *cgroup.Group // of the machine; nil before there is one
	Limits sandbox.Limits
	Shown  Shown
	Tasks  Tasks
	// Disk is a name of the file system that holds every writable place. It is used between
	// Begin and End.
	Disk string
	// Own is memory in the group that is not the guest's, in bytes.
	Own int64

	mu    sync.Mutex // guards what follows
	begun bool
	disk  memorylimit.Disk
	last  driver.Usage
	clock memorylimit.Clock // when it takes a reading by itself, see tick
	ended bool              // last is the final reading
	idle  *time.Timer       // closes the counters
}

// Tasks says how many of them are the guest's, in a reading.
type Tasks interface {
	// Now notes how many there are now, how many were refused, and whether the limit is
	// all but reached.
	Now(u *driver.Usage, c cgroup.Counters)
	// Peak notes how many there were at most.
	Peak(u *driver.Usage, p cgroup.Peaks)
}

// Begin measures the empty disk. Where it is in use already, as in a machine that is taken
// over, used is how many inodes of it are not the guest's, otherwise 0.
func (t *Meter) Begin(used uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = true
	t.clock.Init(t.Limits.MemoryBytes, t.tick)
	t.idle = time.AfterFunc(restAfter, t.Group.CloseCounters)
	return t.disk.Begin(func(st *syscall.Statfs_t) error { return syscall.Statfs(t.Disk, st) }, used)
}

// tick is a reading of the machine's own, with which it moves its memory limit.
func (t *Meter) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.clock.Due() {
		_ = t.update() // the next one may succeed
	}
}

// SentToAgent says that something is asked of the machine. The caller may have the lock.
func (t *Meter) SentToAgent(bytes int) {
	if t.mu.TryLock() { // who has it is reading the counters
		if !t.ended && t.clock.Sent(bytes) {
			_ = t.update() // as above
		}
		t.mu.Unlock()
	}
}

// Read returns a fresh reading.
func (t *Meter) Read(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reading(ctx)
}

// reading is Read, by who holds the lock.
func (t *Meter) reading(ctx context.Context) (driver.Usage, error) {
	switch {
	case ctx.Err() != nil:
		return driver.Usage{}, context.Cause(ctx)
	case t.ended:
		return driver.Usage{}, driver.ErrEnded
	}
	err := t.update()
	switch {
	case err == nil:
		return t.last, nil
	case cgroup.Gone(err): // whoever runs the container removes it, when that has ended
		return driver.Usage{}, driver.ErrEnded
	default:
		return driver.Usage{}, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: fmt.Sprintf("cannot read the sandbox's counters: %v", err), Err: err}
	}
}

// LastTelling takes the last reading before the machine's end that tells anything, where
// there can be one.
func (t *Meter) LastTelling() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.begun {
		_ = t.update() // what could not be read stays as it was
	}
}

// Final is the last reading.
func (t *Meter) Final() driver.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// End has the last reading stay. What killed the machine is in it.
func (t *Meter) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || !t.begun {
		return
	}
	t.ended = true
	t.clock.End()
	if c, err := t.Group.Counters(); err == nil {
		set(&t.last.CPUNanos, c.CPUNanos)
		set(&t.last.OOMKills, c.OOMKills)
	}
	t.peaks()
	t.idle.Stop()
	t.Group.Close()
}

// BeginRun is driver.RunMeter's.
func (t *Meter) BeginRun(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u, err := t.reading(ctx)
	if err != nil {
		return u, err
	}
	t.clock.Start()
	if t.Group.BeginPeak() == nil {
		t.last.MemoryPeak = 0
	}
	return t.last, nil
}

// EndRun is driver.RunMeter's. The mark includes what the disk held at that time, at
// most its own peak.
func (t *Meter) EndRun(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u, err := t.reading(ctx)
	if err != nil {
		return u, err
	}
	if peak, err := t.Group.PeakSince(); err == nil {
		t.last.MemoryPeak = max(t.last.MemoryPeak, peak-t.last.DiskPeak-t.Own)
	}
	return t.last, nil
}

// update reads everything, moves the memory limit and shows the guest what it uses. The
// lock is held.
func (t *Meter) update() error {
	begun := time.Now()
	t.idle.Reset(restAfter)
	t.readDisk()
	c, err := t.Group.Counters()
	if err != nil {
		return err
	}
	u := &t.last
	set(&u.CPUNanos, c.CPUNanos)
	limits := memorylimit.Limits{Memory: t.Limits.MemoryBytes + t.Own, Disk: t.Limits.DiskBytes}
	if c.OOMKills > u.OOMKills {
		t.readDisk() // what it held then, at least
		u.MemoryLate = u.MemoryLate || t.disk.Late(limits, u.DiskBytes)
	}
	set(&u.OOMKills, c.OOMKills)
	t.Tasks.Now(u, c)
	if c.MemoryBytes >= 0 {
		u.MemoryBytes = max(0, c.MemoryBytes-u.DiskBytes-t.Own)
	}
	if u.MemoryBytes > t.Limits.MemoryBytes {
		// Clean page cache is charged too, but the kernel takes it back by itself. And
		// more may have been written since the disk was looked at.
		if s, err := t.Group.Stats(); err == nil && s.Anon >= 0 {
			t.readDisk()
			u.MemoryBytes = max(0, s.Anon+max(0, s.Shmem-u.DiskBytes)+max(0, s.Kernel)-t.Own)
		}
	}
	u.MemoryPeak = max(u.MemoryPeak, u.MemoryBytes)
	u.ProcessesPeak = max(u.ProcessesPeak, u.Processes)
	t.peaks()
	_ = t.disk.Follow(t.Group, limits, u.DiskBytes) // the next reading tries again
	t.Shown.Write(u.CPUNanos, u.MemoryBytes, u.Processes)
	t.clock.Follow(begun, u.DiskBytes, u.CPUNanos)
	return nil
}

// peaks takes the kernel's own, while the group is there.
func (t *Meter) peaks() {
	p, err := t.Group.Peaks()
	if err != nil {
		return
	}
	t.Tasks.Peak(&t.last, p)
	set(&t.last.ReadBytes, p.ReadBytes)
	set(&t.last.WrittenBytes, p.WrittenBytes)
}

// readDisk measures the one file system that holds every writable place.
func (t *Meter) readDisk() {
	if held, ok := t.disk.Look(); ok {
		t.last.SetDisk(held.Bytes, held.Inodes, held.Full, held.InodesFull)
	}
}

// set stores a counter that could be read.
func set(to *int64, value int64) {
	if value >= 0 {
		*to = value
	}
}
