//go:build linux

package native

import (
	"slices"
	"sync"
	"time"
)

// overdueInterval is how often a machine with a program is checked whose zygote has not
// said that its child has ended.
const overdueInterval = time.Second

// overdue is what is seen of a child whose end its zygote has not told. A zygote
// that hangs tells nobody anything: the run would last until its time is over.
type overdue struct {
	child int64 // its number on the link

	mu    sync.Mutex
	timer *time.Timer // runs from BeginRun on, until the zygote has told or the machine is destroyed
	over  bool        // it is destroyed
	since time.Time   // nothing of the guest is left in the machine; zero: something is
}

// watchChild begins to check, if the machine's program is forked.
func (m *machine) watchChild() {
	o := &m.overdue
	if m.zygote == nil || m.cgroup == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil && !o.over {
		o.timer = time.AfterFunc(overdueInterval, m.killOverdue)
	}
}

// stop ends the checks.
func (o *overdue) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if o.timer != nil {
		o.timer.Stop()
	}
}

// killOverdue ends the zygote when the child is gone and the zygote has not said so for
// reapTimeout. A process that the program left behind delays it.
func (m *machine) killOverdue() {
	o := &m.overdue
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || !m.zygote.link.Owes(o.child) {
		return
	}
	now := time.Now()
	switch {
	case m.holdsGuest():
		o.since = time.Time{}
	case o.since.IsZero():
		o.since = now
	case now.Sub(o.since) >= reapTimeout:
		m.zygote.kill()
		return
	}
	o.timer.Reset(overdueInterval)
}

// holdsGuest says whether there is more in the machine than its first process.
// The kernel does not list those that have ended and that nobody has collected.
func (m *machine) holdsGuest() bool {
	processes, err := m.cgroup.Procs()
	return err != nil || slices.ContainsFunc(processes, func(pid int) bool { return pid != m.child.PID })
}
