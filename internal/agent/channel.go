//go:build linux

package agent

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// channel is one operation that the host asked for.
type channel struct {
	a   *agent
	id  uint32
	in  *wire.Inbox                // stream 0, or nil
	out [wire.Streams]*wire.Credit // streams 1 and 2, or nil

	gone chan struct{} // closed when the host has lost interest

	mu       sync.Mutex
	process  *child
	terminal *pollFile // of the process, or nil
	socket   *pollFile // of a connection or of doors, or nil
	reset    bool      // its other end is to learn that it did not end well
}

func newChannel(a *agent, id uint32, op wire.Op, in bool, out int) *channel {
	c := &channel{a: a, id: id, gone: make(chan struct{})}
	if in {
		c.in = wire.NewInbox(wire.UploadWindow(op))
	}
	for s := range out {
		c.out[1+s] = wire.NewCredit(wire.DownloadWindow(op))
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
		c.readNoMore()
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

// place says which processors the channel's process may use, if it is running.
func (c *channel) place(cpus []byte) {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p != nil && len(cpus) > 0 {
		c.a.reap.place(p, cpus)
	}
}

// resize changes the size of the process's terminal, if it has one.
func (c *channel) resize(size *wire.TerminalSize) {
	c.mu.Lock()
	tty := c.terminal
	c.mu.Unlock()
	if tty != nil && size != nil && size.Valid() {
		tty.setSize(*size)
	}
}

// attach names the process that signals go to, and its terminal. When the host
// has already lost interest, the process is killed.
func (c *channel) attach(p *child, terminal *pollFile) {
	c.mu.Lock()
	c.process, c.terminal = p, terminal
	c.mu.Unlock()
	if c.abandoned() {
		c.a.reap.signal(p, unix.SIGKILL, true)
	}
}

// connected names the socket that is closed when the host loses interest.
func (c *channel) connected(f *pollFile) {
	c.mu.Lock()
	c.socket = f
	c.mu.Unlock()
	if c.abandoned() {
		_ = f.Close()
	}
}

// readNoMore ends a read of the socket: nobody wants what comes.
func (c *channel) readNoMore() {
	c.mu.Lock()
	f := c.socket
	c.mu.Unlock()
	if f != nil {
		_ = f.SetReadDeadline(time.Unix(1, 0)) // closed already: nothing to end
	}
}

// abandon gives up the operation. Only the reading loop calls it, and again
// when the host breaks the rules and closes twice.
func (c *channel) abandon() {
	if c.abandoned() {
		return
	}
	close(c.gone)
	c.stop()
	c.signal(unix.SIGKILL, true)
	c.mu.Lock()
	f, reset := c.socket, c.reset
	c.mu.Unlock()
	if f == nil {
		return
	}
	if reset {
		_ = f.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	}
	_ = f.Close()
}

// abandoned says whether the host has lost interest.
func (c *channel) abandoned() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
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
	c.a.message(wire.KindClose, c.id, &o)
}

// event tells the host that something happened.
func (c *channel) event(e wire.Event) { c.a.message(wire.KindEvent, c.id, &e) }

// received releases what the last Next returned and grants it to the host.
func (c *channel) received() {
	if n := c.in.Release(); n > 0 {
		c.a.frame(wire.AppendWindow(nil, c.id, wire.Stdin, n))
	}
}
