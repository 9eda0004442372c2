//go:build linux

package native

import (
	"slices"
	"sync"
	"time"
)

// lookEvery is how often a machine is looked at whose zygote has not said that its
// fork has ended; silence for so much longer means that nobody asked.
const (
	lookEvery   = time.Second
	nobodyAsked = 10 * lookEvery
)

// overdue is what is seen of a fork whose end its zygote has not told. A zygote
// that hangs tells nobody anything: the run would last until its time is over.
type overdue struct {
	fork int64 // its number

	mu     sync.Mutex
	looked time.Time
	since  time.Time // nothing of the guest is left in the machine; zero: something is
}

// attend ends the zygote when the fork is gone and it has not said so for
// reapTimeout. It is called with every reading of the counters, which somebody
// takes while a run goes on. A process that the program left behind delays it.
func (m *machine) attend() {
	o, p := &m.overdue, m.zygote
	if p == nil || m.cgroup == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	pause := now.Sub(o.looked)
	if pause < lookEvery {
		return
	}
	o.looked = now
	if pause > nobodyAsked || !p.owes(o.fork) || m.holdsGuest() {
		o.since = time.Time{}
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	if now.Sub(o.since) >= reapTimeout {
		p.kill()
	}
}

// owes says whether the zygote has yet to say that a fork has ended.
func (p *zygote) owes(fork int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forks[fork] != nil
}

// holdsGuest says whether there is more in the machine than its first process.
// The kernel does not list those that have ended and that nobody has collected.
func (m *machine) holdsGuest() bool {
	processes, err := m.cgroup.Procs()
	return err != nil || slices.ContainsFunc(processes, func(pid int) bool { return pid != m.child.PID })
}
