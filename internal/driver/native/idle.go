//go:build linux

package native

import (
	"cmp"
	"sync"
	"time"
)

// # What an idle machine holds open
//
// Three descriptors: the connection to its agent, the listener of its filter, and its
// root. They must stay: the first is the agent's life, and the others cannot be had
// again. (The root is a mount of our own, through which the host may write.)
//
// The files of its counters are six more. They have names, which the host chose, so
// they are open only while somebody reads them: the engine, and the machine itself, do so
// every few milliseconds while something goes on in it, and not at all when it is idle.
// The first process has a number, which is its own until we have waited for it. So
// its pidfd is closed as well once somebody reads what the agent says: when the
// process ends, so does that connection, whose other end nobody else can hold for
// longer, and then the pidfd is opened again to wait for the rest of the sandbox, and
// stays open, as it does once the process was killed: who ends may need a while.

// restAfter is for how long at least counters that nobody reads stay open. It is
// several times the slowest pause between two readings of one that works.
const restAfter = time.Second

// openMeters are the meters whose counters are open. It is safe for concurrent
// use; the zero value is ready. A meter's lock comes before its own.
type openMeters struct {
	mu    sync.Mutex
	all   map[*meter]struct{}
	timer *time.Timer   // nil before the first; it runs while there are any
	pause time.Duration // restAfter, or more in tests
}

// add takes a meter, whose lock is held.
func (o *openMeters) add(t *meter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*meter]struct{}{}
	}
	o.all[t] = struct{}{}
	o.pause = cmp.Or(o.pause, restAfter)
	switch {
	case o.timer == nil:
		o.timer = time.AfterFunc(o.pause, o.tick)
	case len(o.all) == 1:
		o.timer.Reset(o.pause)
	}
}

// remove forgets a meter, whose lock is held.
func (o *openMeters) remove(t *meter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, t)
}

func (o *openMeters) tick() {
	o.sweep(false)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) > 0 {
		o.timer.Reset(o.pause)
	}
}

// sweep closes what nobody has read since the last sweep, or all that is not being
// read now: then somebody needs descriptors.
func (o *openMeters) sweep(all bool) {
	o.mu.Lock()
	open := make([]*meter, 0, len(o.all))
	for t := range o.all {
		open = append(open, t)
	}
	o.mu.Unlock()
	for _, t := range open {
		if !t.mu.TryLock() {
			continue // somebody reads it
		}
		if t.fresh && !all {
			t.fresh = false
		} else {
			if !all { // neither anybody nor its own clock had a reason to
				t.clock.Stop()
			}
			t.rest()
		}
		t.mu.Unlock()
	}
}

// wakeUp notes that the counters are read. Those of a machine with a forked program stay open: it
// lives for one run only. The lock is held.
func (t *meter) wakeUp() {
	t.fresh = true
	if t.open || t.machine.zygote != nil {
		return
	}
	t.open = true
	t.machine.host.meters.add(t)
	if child := t.machine.child; child != nil {
		child.Wake()
	}
}

// rest closes the counters. The lock is held.
func (t *meter) rest() {
	if !t.open {
		return
	}
	t.open = false
	t.machine.host.meters.remove(t)
	if g := t.machine.cgroup; g != nil {
		g.CloseCounters()
	}
	if t.machine.dialled.Load() {
		t.machine.child.Rest()
	}
}
