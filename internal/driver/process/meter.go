//go:build linux

package process

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/proctree"
)

// meter watches a machine's processes and files. It is safe for concurrent use.
type meter struct {
	machine *machine

	mu    sync.Mutex
	agent int // its process number; 0: not seen yet
	last  driver.Usage
	seen  []proctree.Process // below the supervisor, at the last reading
	ended bool               // last is the final reading

	looked time.Time     // at the disk
	took   time.Duration // the last look
}

// crowd is how many times as many processes as it may have a sandbox has that nothing
// limits and that must be ended. See verdict.Judge, which ends it before.
const crowd = 5

// lookShare bounds what looking at the disk costs: one part in so many of the time.
const lookShare = 20

// read returns a fresh reading.
func (t *meter) read(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return driver.Usage{}, context.Cause(ctx)
	case t.ended:
		return driver.Usage{}, driver.ErrEnded
	}
	t.update()
	return t.snapshot(), nil
}

// begin forgets the marks of what was before a run.
func (t *meter) begin(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	t.last.MemoryPeak = 0
	t.mu.Unlock()
	return t.read(ctx)
}

// end returns a reading for which the disk was looked at just now.
func (t *meter) end(ctx context.Context) (driver.Usage, error) {
	t.mu.Lock()
	t.looked = time.Time{}
	t.mu.Unlock()
	return t.read(ctx)
}

// final is the last reading.
func (t *meter) final() driver.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot()
}

// snapshot copies the reading and adds what the system-call filter reported.
func (t *meter) snapshot() driver.Usage {
	u := t.last
	if l := t.machine.listener; l != nil {
		u.Denied, u.Killed = l.Denied(), l.Killed()
	}
	return u
}

// finish has the last reading stay.
func (t *meter) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.machine.conn != nil {
		t.lookAtDisk(true)
	}
	t.ended = true
}

// update takes a reading. The lock is held.
func (t *meter) update() {
	m := t.machine
	if m.child == nil {
		return
	}
	if t.agent == 0 { // the supervisor's only child, as long as it lives
		if below := proctree.Children(m.child.PID); len(below) == 1 {
			t.agent = below[0]
		}
	}
	t.lookAtDisk(false)
	if t.agent == 0 {
		return
	}
	u, limits := &t.last, m.plan.Limits
	if m.uid < 0 {
		most := int(crowd * limits.Processes)
		t.seen = proctree.Some(m.child.PID, most)
		if len(t.seen) == most { // a bomb: while the rest is looked at it grows
			u.Processes, u.ProcessesFull = int64(most), true
			u.ProcessesPeak = max(u.ProcessesPeak, u.Processes)
			return
		}
	}
	tree := proctree.Read(t.agent)
	u.CPUNanos = max(u.CPUNanos, tree.CPUNanos)
	u.MemoryBytes = tree.MemoryBytes
	if u.MemoryBytes > limits.MemoryBytes/2 { // else it is not worth the work
		u.MemoryBytes = min(u.MemoryBytes, proctree.Memory(t.agent, 0))
	}
	u.MemoryPeak = max(u.MemoryPeak, u.MemoryBytes)
	u.Processes = tree.Tasks
	u.ProcessesPeak = max(u.ProcessesPeak, u.Processes)
	// RLIMIT_NPROC counts no refusals; see the native driver, which does the same
	// where it has no cgroup.
	u.ProcessesFull = u.ProcessesFull || u.Processes > limits.Processes-limits.Processes/4
	if u.Processes > limits.Processes {
		u.ProcessesDenied = max(1, u.ProcessesDenied)
	}
}

// EachTask implements driver.TaskMeter.
func (m *machine) EachTask(visit func(task int, cpu, system int64)) {
	m.meter.mu.Lock()
	agent := m.meter.agent
	m.meter.mu.Unlock()
	if agent == 0 {
		return
	}
	var pids []int
	for _, p := range proctree.Some(agent, int(crowd*m.plan.Limits.Processes)) {
		pids = append(pids, p.PID)
	}
	proctree.EachTask(pids, visit)
}

// lookAtDisk counts what lies in the machine's places, unless that was done lately.
func (t *meter) lookAtDisk(now bool) {
	if !now && time.Since(t.looked) < lookShare*t.took {
		return
	}
	start := time.Now()
	l := t.machine.plan.Limits
	bytes, inodes := t.machine.usedDisk(l.Inodes)
	t.looked, t.took = time.Now(), time.Since(start)
	t.last.SetDisk(bytes, inodes, bytes > l.DiskBytes, inodes > l.Inodes)
}

// killSeen kills the processes that were below the supervisor at the last reading, and
// what they have started since, as far as it can be found. It waits until they are dead,
// for destroyTimeout at most.
func (t *meter) killSeen() {
	t.mu.Lock()
	seen := t.seen
	t.mu.Unlock()
	for until := time.Now().Add(destroyTimeout); time.Now().Before(until); time.Sleep(time.Millisecond) {
		live := map[proctree.Process]bool{}
		for _, p := range seen {
			if p.Lives() && !live[p] {
				live[p] = true
				for _, q := range proctree.Below(p.PID) {
					live[q] = true
				}
			}
		}
		if len(live) == 0 {
			return
		}
		for p := range live {
			kill(p)
		}
		seen = slices.Collect(maps.Keys(live))
	}
}

// kill ends a process, and nobody who has got its number since.
func kill(p proctree.Process) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return // it is gone
	}
	defer unix.Close(fd) //nolint:errcheck // only signalled
	if p.Lives() {       // so the descriptor is of that very process
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// tasksOf counts the threads of a user's processes, but of those that hide whose they are.
func tasksOf(uid int) (n int64) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var st unix.Stat_t // of a directory with one directory for each thread
		if unix.Stat("/proc/"+e.Name()+"/task", &st) == nil && int(st.Uid) == uid {
			n += max(0, int64(st.Nlink)-2) //nolint:gosec // a number of threads
		}
	}
	return n
}
