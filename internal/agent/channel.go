//go:build linux

package agent

import (
	"sync"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// channel is one operation that the host asked for.
type channel struct {
	a   *agent
	id  uint32
	in  *wire.Inbox                // stream 0, or nil
	out [wire.Streams]*wire.Credit // streams 1 and 2, or nil

	mu      sync.Mutex
	gone    bool // the host has lost interest
	process *child
}

func newChannel(a *agent, id uint32, in bool, out int) *channel {
	c := &channel{a: a, id: id}
	if in {
		c.in = wire.NewInbox()
	}
	for s := range out {
		c.out[1+s] = wire.NewCredit()
	}
	return c
}

// flow handles data, eof and window.
func (c *channel) flow(f wire.Frame) error {
	stream, rest, err := f.Stream()
	if err != nil {
		return err
	}
	credit, inbox := c.out[stream], c.in
	if stream != wire.Stdin {
		inbox = nil
	}
	switch {
	case f.Kind == wire.KindData && inbox != nil:
		return inbox.Put(rest)
	case f.Kind == wire.KindEOF && inbox != nil:
		return inbox.EOF()
	case f.Kind == wire.KindEOF && credit != nil: // the host takes no more
		credit.Close()
		return nil
	case f.Kind == wire.KindWindow && credit != nil:
		return credit.Grant(wire.Grant(rest))
	}
	return broken("a frame for a stream that the channel does not have")
}

// signal sends a signal to the channel's process, if it is running.
func (c *channel) signal(sig unix.Signal, group bool) {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p != nil && sig > 0 && sig <= 64 {
		c.a.reap.signal(p, sig, group)
	}
}

// attach names the process that signals go to. When the host has already lost
// interest, it is killed.
func (c *channel) attach(p *child) {
	c.mu.Lock()
	c.process = p
	gone := c.gone
	c.mu.Unlock()
	if gone {
		c.a.reap.signal(p, unix.SIGKILL, true)
	}
}

// abandon gives up the operation.
func (c *channel) abandon() {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.stop()
	c.signal(unix.SIGKILL, true)
}

// abandoned says whether the host has lost interest.
func (c *channel) abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// stop ends the streams, so that nothing waits for them any more.
func (c *channel) stop() {
	if c.in != nil {
		c.in.Close()
	}
	for _, credit := range c.out {
		if credit != nil {
			credit.Close()
		}
	}
}

// finish ends the channel. Frames that still come for it are ignored.
func (c *channel) finish(o wire.Outcome) {
	c.stop()
	c.a.mu.Lock()
	delete(c.a.channels, c.id)
	c.a.mu.Unlock()
	c.a.message(wire.KindClose, c.id, o)
}

// event tells the host that something happened.
func (c *channel) event(e wire.Event) { c.a.message(wire.KindEvent, c.id, e) }

// received releases what the last Next returned and grants it to the host.
func (c *channel) received() {
	if n := c.in.Release(); n > 0 {
		c.a.frame(wire.AppendWindow(nil, c.id, wire.Stdin, n))
	}
}
