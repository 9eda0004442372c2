package guest

import (
	"io"
	"sync"
)

// maxPending is the most that waits to be sent. Flow control keeps it far
// below; only a guest that does not read drives it there.
const maxPending = 16 << 20

// keepPending is the largest buffer that is used again, by whichever outbox.
const keepPending = 1 << 20

// buffers are those that nobody uses. An outbox without frames has none: of a
// thousand idle sandboxes, none keeps what a large upload once took.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// outbox holds frames until the connection takes them, so that no caller and
// not the reading loop ever waits for a guest that does not read. What the
// connection takes at once is written by who adds it: to wake another goroutine
// costs more than to write. For the rest there is a goroutine, as long as there is
// a rest.
type outbox struct {
	w      io.Writer
	try    func(b []byte) (written int) // writes what fits without waiting
	failed func(error)                  // called once, when w failed; may call close

	mu      sync.Mutex
	pending *[]byte // nil: nothing
	writing bool    // flush is at it: nobody else may write
	closed  bool
	held    bool   // what is added waits in later
	later   []byte // until it is released
	flushes sync.WaitGroup
}

func newOutbox(conn Link, failed func(error)) *outbox {
	return &outbox{w: conn, try: tryWriter(conn), failed: failed}
}

// add appends frames by calling f with the buffer. It reports false when too
// much waits already.
func (o *outbox) add(f func(b []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held && !o.closed {
		o.later = f(o.later)
		return len(o.later) <= maxPending
	}
	return o.append(f)
}

// append is add where nothing is held back. The lock is held.
func (o *outbox) append(f func(b []byte) []byte) bool {
	if o.closed {
		return true // the connection has ended: its error is reported elsewhere
	}
	if o.pending == nil {
		o.pending, _ = buffers.Get().(*[]byte) // it holds nothing else
	}
	b := *o.pending
	if len(b) > maxPending {
		return false
	}
	b = f(b)
	if !o.writing {
		n := o.try(b)
		b = b[:copy(b, b[n:])]
	}
	*o.pending = b
	switch {
	case o.writing:
	case len(b) == 0:
		reuse(o.pending)
		o.pending = nil
	default:
		o.writing = true
		o.flushes.Go(o.flush)
	}
	return true
}

// addLast is add of the last frames until release.
func (o *outbox) addLast(f func(b []byte) []byte) bool {
	return o.add(func(b []byte) []byte {
		o.held = true
		return f(b)
	})
}

// release sends what was held back, before anything that comes after.
func (o *outbox) release() (fits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	later := o.later
	o.held, o.later = false, nil
	return len(later) == 0 || o.append(func(b []byte) []byte { return append(b, later...) })
}

// reuse gives a buffer to whoever needs one next.
func reuse(b *[]byte) {
	if cap(*b) <= keepPending {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// close drops what waits. The connection must have been closed before.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.pending = true, nil
}

// wait returns when nobody writes any more, after close.
func (o *outbox) wait() { o.flushes.Wait() }

// flush writes until nothing is left, or w fails.
func (o *outbox) flush() {
	for b := o.take(); b != nil; b = o.take() {
		if _, err := o.w.Write(*b); err != nil {
			o.failed(err)
			return // nobody writes after it
		}
		reuse(b)
	}
}

// take returns the frames that wait; nil, and others may write, when there are none.
func (o *outbox) take() *[]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.pending
	o.pending = nil
	o.writing = b != nil
	return b
}
