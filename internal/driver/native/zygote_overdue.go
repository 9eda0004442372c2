//go:build linux

package native

import (
	"slices"
	"sync"
	"time"
)

// overdueInterval is how often a machine is checked whose zygote has not said that its
// child has ended. After a pause of unwatched nobody has read the machine's counters.
const (
	overdueInterval = time.Second
	unwatched       = 10 * overdueInterval
)

// overdue is what is seen of a child whose end its zygote has not told. A zygote
// that hangs tells nobody anything: the run would last until its time is over.
type overdue struct {
	child int64 // its number on the link

	mu      sync.Mutex
	checked time.Time
	since   time.Time // nothing of the guest is left in the machine; zero: something is
}

// killOverdue ends the zygote when the child is gone and the zygote has not said so for
// reapTimeout. It is called with every reading of the counters, which somebody
// takes while a run goes on. A process that the program left behind delays it.
func (m *machine) killOverdue() {
	o, z := &m.overdue, m.zygote
	if z == nil || m.cgroup == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	pause := now.Sub(o.checked)
	if pause < overdueInterval {
		return
	}
	o.checked = now
	if pause > unwatched || !z.link.Owes(o.child) || m.holdsGuest() {
		o.since = time.Time{}
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	if now.Sub(o.since) >= reapTimeout {
		z.kill()
	}
}

// holdsGuest says whether there is more in the machine than its first process.
// The kernel does not list those that have ended and that nobody has collected.
func (m *machine) holdsGuest() bool {
	processes, err := m.cgroup.Procs()
	return err != nil || slices.ContainsFunc(processes, func(pid int) bool { return pid != m.child.PID })
}
