package wire

import "sync"

// A stream starts with its window, which is also the largest that it may have:
// the most bytes that a receiver has to hold. That of a file that is written is
// larger, so that its sender seldom waits: only callers of the host's can open
// one.
const (
	WindowSize      = 256 << 10
	WriteWindowSize = 512 << 10
)

// DoorWindowSize is the window of both streams of a connection out of a sandbox. It is
// smaller, so that what may wait for a sandbox that stands still, with as many connections
// as it may have, is not more than a host holds for it.
const DoorWindowSize = 64 << 10

// UploadWindow is the window of stream 0 of an operation.
func UploadWindow(op Op) int {
	if op == OpWrite || op == OpRestore {
		return WriteWindowSize
	}
	return DownloadWindow(op)
}

// DownloadWindow is the window of streams 1 and 2 of an operation.
func DownloadWindow(op Op) int {
	if op == OpAccept {
		return DoorWindowSize
	}
	return WindowSize
}

// grantShare is the part of a window that has to be consumed before a receiver
// grants it, so that window frames stay rare.
const grantShare = 4

// Streams is the number of streams of a channel.
const Streams = 3

// The streams of a channel.
const (
	Stdin  uint8 = 0 // or an upload: host to agent
	Stdout uint8 = 1 // or a download: agent to host
	Stderr uint8 = 2 // agent to host
)

// Credit is the sender's half of one stream's flow control: how much it may
// send. It is safe for concurrent use.
type Credit struct {
	window int

	mu     sync.Mutex
	wake   sync.Cond
	n      int
	closed bool
}

// NewCredit returns the credit of a new stream with that window.
func NewCredit(window int) *Credit {
	c := &Credit{window: window, n: window}
	c.wake.L = &c.mu
	return c
}

// NewCreditOf returns the credit of a stream that goes on: so much of its window is left.
func NewCreditOf(window, left int) *Credit {
	c := NewCredit(window)
	c.n = max(0, min(left, window))
	return c
}

// Take waits until something may be sent and takes at most most bytes of
// credit. It returns 0 once the credit is closed.
func (c *Credit) Take(most int) int { return c.TakeUnless(never, most) }

func never() bool { return false }

// TakeUnless is Take that also returns 0 once stop says so; Wake makes it ask.
func (c *Credit) TakeUnless(stop func() bool, most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n == 0 && !c.closed && !stop() {
		c.wake.Wait()
	}
	if c.closed || c.n == 0 {
		return 0
	}
	n := min(most, c.n)
	c.n -= n
	return n
}

// Wake makes those who wait in TakeUnless ask again.
func (c *Credit) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake.Broadcast()
}

// Return gives back credit that was taken and not used.
func (c *Credit) Return(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	c.wake.Signal()
}

// Grant adds what the receiver has granted. Granting nothing, or more than
// was ever sent, is a *Violation.
func (c *Credit) Grant(n uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 || int64(c.n)+int64(n) > int64(c.window) {
		return violation("a window that grants nothing or too much")
	}
	c.n += int(n)
	c.wake.Signal()
	return nil
}

// Closed says whether the stream has ended.
func (c *Credit) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close ends the stream: the receiver takes no more. Take returns 0 from now on.
func (c *Credit) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.wake.Broadcast()
}

// Inbox is the receiver's half of one stream's flow control: the bytes that
// came and were not consumed, at most its window. Put and EOF are called by
// the connection's reader and never block; Next and Release by one consumer.
type Inbox struct {
	window int

	mu     sync.Mutex
	wake   sync.Cond
	buf    []byte // came, not yet returned by Next
	spare  []byte // what Next returned last, to be used again
	lent   int    // bytes returned by Next and not released
	owed   int    // released bytes not yet granted
	eof    bool   // the sender has said that it is done
	closed bool   // the consumer is gone
}

// NewInbox returns the inbox of a new stream with that window.
func NewInbox(window int) *Inbox {
	b := &Inbox{window: window}
	b.wake.L = &b.mu
	return b
}

// Put stores a copy of p. Data beyond the window, or after the end of the
// stream, is a *Violation. After Close, p is dropped.
func (b *Inbox) Put(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.eof:
		return violation("data after the end of its stream")
	case b.closed:
		return nil
	case len(b.buf)+b.lent+b.owed+len(p) > b.window:
		return violation("more data than the window allows")
	}
	b.buf = append(b.buf, p...)
	b.wake.Signal()
	return nil
}

// EOF says that no more data comes. Saying it twice is a *Violation.
func (b *Inbox) EOF() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.eof {
		return violation("a stream that ends twice")
	}
	b.eof = true
	b.wake.Signal()
	return nil
}

// Ended says whether the sender has said that no more data comes.
func (b *Inbox) Ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.eof
}

// Finish ends the stream unless it has ended: the channel is over. What came
// is still returned by Next.
func (b *Inbox) Finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eof = true
	b.wake.Signal()
}

// Close drops what came and what will come; Next returns nil.
func (b *Inbox) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.buf, b.spare = true, nil, nil
	b.wake.Signal()
}

// Next waits for data and returns all there is, or nil at the end of the
// stream or after Close. Release must be called before the next Next; the
// slice must not be used after that.
func (b *Inbox) Next() []byte { return b.NextUnless(never) }

// Wake makes the consumer that waits in NextUnless ask again.
func (b *Inbox) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake.Broadcast()
}

// NextUnless is Next that also returns nil once stop says so; Wake makes it ask.
func (b *Inbox) NextUnless(stop func() bool) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.buf) == 0 && !b.eof && !b.closed && !stop() {
		b.wake.Wait()
	}
	if len(b.buf) == 0 || b.closed {
		return nil
	}
	p := b.buf
	b.buf, b.spare, b.lent = b.spare[:0], p, len(p)
	return p
}

// Release says that what Next returned has been consumed. The result is the
// number of bytes to grant to the sender now, often 0.
func (b *Inbox) Release() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owed += b.lent
	b.lent = 0
	if b.owed < b.window/grantShare || b.eof || b.closed {
		return 0
	}
	n := b.owed
	b.owed = 0
	return n
}
