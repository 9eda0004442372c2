package guest

import (
	"io"
	"net"
	"sync"
)

// maxPending is the most that waits to be sent. Flow control keeps it far
// below; only a guest that does not read drives it there.
const maxPending = 16 << 20

// keepPending is the largest buffer that is used again.
const keepPending = 1 << 20

// outbox holds frames until the connection takes them, so that no caller and
// not the reading loop ever waits for a guest that does not read. What the
// connection takes at once is written by who adds it: to wake another goroutine
// costs more than to write.
type outbox struct {
	try func(b []byte) (written int) // writes what fits without waiting

	mu      sync.Mutex
	wake    sync.Cond
	pending []byte
	spare   []byte
	writing bool // run is at it: nobody else may write
	closed  bool
}

func newOutbox(conn net.Conn) *outbox {
	o := &outbox{try: tryWriter(conn)}
	o.wake.L = &o.mu
	return o
}

// add appends frames by calling f with the buffer. It reports false when too
// much waits already.
func (o *outbox) add(f func(b []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true // the connection has ended: its error is reported elsewhere
	}
	if len(o.pending) > maxPending {
		return false
	}
	o.pending = f(o.pending)
	if !o.writing {
		n := o.try(o.pending)
		o.pending = o.pending[:copy(o.pending, o.pending[n:])]
	}
	if len(o.pending) > 0 {
		o.wake.Signal()
	}
	return true
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.pending, o.spare = true, nil, nil
	o.wake.Signal()
}

// run writes what is added until close or an error of w.
func (o *outbox) run(w io.Writer) error {
	for {
		b := o.take()
		if b == nil {
			return nil
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		o.give(b)
	}
}

// take waits for frames and returns all there are, nil after close.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) == 0 && !o.closed {
		o.wake.Wait()
	}
	if o.closed {
		return nil
	}
	b := o.pending
	o.pending, o.spare, o.writing = o.spare, nil, true
	return b
}

// give returns a buffer for later use.
func (o *outbox) give(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	if !o.closed && cap(b) <= keepPending {
		o.spare = b[:0]
	}
}
