package guest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"pinfold/sandbox"
)

// answerTimeout is how long the agent may keep a caller waiting without the least
// progress. A guest cannot stop its agent, but may slow it down: all of them
// share the sandbox's CPU time.
const answerTimeout = time.Minute

// ErrSilent means that the agent did not do what it had to, for so long that
// nothing can be expected of it any more.
var ErrSilent = errors.New("the sandbox's agent does not answer")

// answerTimer watches over one channel whose agent must get on with it. Time counts
// while somebody waits for the agent, from the last frame that came. It does
// not count while the agent waits for us: for a client that is slow to send,
// or to take.
type answerTimer struct {
	silent func() // called once

	mu    sync.Mutex
	timer *time.Timer
	since time.Time // of the last progress
	owed  bool      // somebody waits
	over  bool
}

func newAnswerTimer(silent func()) *answerTimer {
	d := &answerTimer{silent: silent}
	d.timer = time.AfterFunc(answerTimeout, d.expired)
	d.timer.Stop()
	return d
}

// wait says that from now on the agent is waited for.
func (d *answerTimer) wait() {
	d.locked(func() {
		if !d.owed && !d.over {
			d.owed, d.since = true, time.Now()
			d.timer.Reset(answerTimeout)
		}
	})
}

// locked calls f under the lock, unless the agent may take its time.
func (d *answerTimer) locked(f func()) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// rest says that the agent is not waited for any more.
func (d *answerTimer) rest() { d.locked(func() { d.owed = false }) }

// progress says that a frame came.
func (d *answerTimer) progress() { d.locked(func() { d.since = time.Now() }) }

// end says that nothing is owed ever again.
func (d *answerTimer) end() {
	d.locked(func() {
		d.over = true
		d.timer.Stop()
	})
}

// expired is the timer's.
func (d *answerTimer) expired() {
	d.mu.Lock()
	left := answerTimeout - time.Since(d.since)
	due := d.owed && !d.over && left <= 0
	switch {
	case due:
		d.over = true
	case d.owed && !d.over:
		d.timer.Reset(left)
	}
	d.mu.Unlock()
	if due {
		d.silent()
	}
}

// fellSilent ends the connection: no other call would fare better.
func (g *Guest) fellSilent() {
	g.end(&sandbox.Error{
		Code: sandbox.CodeProtocol, Message: fmt.Sprintf("%s: nothing came for %v", ErrSilent, answerTimeout),
		Hint: "the sandbox is ended; create another one", Err: ErrSilent,
	})
}
