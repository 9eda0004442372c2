package guest

import (
	"io"
	"sync"
)

// maxPending is the most that waits to be sent. Who sends content or asks for an operation
// waits from maxAhead on, so that only what must not wait drives it there, for a guest that
// does not read: a few bytes for each window and end of a channel.
const (
	maxPending = 16 << 20
	maxAhead   = 4 << 20
)

// keepPending is the largest buffer that is used again, by whichever outbox.
const keepPending = 1 << 20

// buffers are those that nobody uses. An outbox without frames has none: of a
// thousand idle sandboxes, none keeps what a large upload once took.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// outbox holds frames until the connection takes them, so that the reading loop never
// waits for a guest that does not read, and nobody who ends something. What the
// connection takes at once is written by who adds it: to wake another goroutine
// costs more than to write. For the rest there is a goroutine, as long as there is
// a rest.
type outbox struct {
	w      io.Writer
	try    func(b []byte) (written int) // writes what fits without waiting
	failed func(error)                  // called once, when w failed; may call close

	mu      sync.Mutex
	room    sync.Cond // what waits may have become less, or who waits for that wants no more
	pending *[]byte   // nil: nothing
	writing bool      // flush is at it: nobody else may write
	closed  bool
	held    bool   // what is added waits in later
	later   []byte // until it is released
	flushes sync.WaitGroup
}

func newOutbox(conn Link, failed func(error)) *outbox {
	o := &outbox{w: conn, try: tryWriter(conn), failed: failed}
	o.room.L = &o.mu
	return o
}

// addUnless is add for who can wait: while much is to be sent it waits, and it adds nothing
// once stop says so; wake makes it ask. Frames for a connection that has ended are dropped.
func (o *outbox) addUnless(stop func() bool, f func(b []byte) []byte) (added bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wait(stop) && o.put(f)
}

// awaitRoom waits as addUnless does.
func (o *outbox) awaitRoom(stop func() bool) (is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wait(stop)
}

// wait waits for room, with the lock held.
func (o *outbox) wait(stop func() bool) bool {
	for !o.closed && o.waiting() > maxAhead {
		if stop() {
			return false
		}
		o.room.Wait()
	}
	return true
}

// waiting is how many bytes are to be sent. The lock is held.
func (o *outbox) waiting() int {
	n := len(o.later)
	if o.pending != nil {
		n += len(*o.pending)
	}
	return n
}

// wake makes those who wait for room ask again whether they are to stop.
func (o *outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.room.Broadcast()
}

// add appends frames by calling f with the buffer. It reports false when too
// much waits already.
func (o *outbox) add(f func(b []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put(f)
}

// put is add with the lock held.
func (o *outbox) put(f func(b []byte) []byte) bool {
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
	defer o.room.Broadcast()
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
	o.room.Broadcast()
}

// drained returns when nobody writes any more, after close.
func (o *outbox) drained() { o.flushes.Wait() }

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
	o.room.Broadcast()
	return b
}
