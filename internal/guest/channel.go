package guest

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// use is what a channel is used for. The methods are called by the reading
// loop, must not block, and return a *wire.Violation for what does not fit.
type use interface {
	event(wire.Event) error
	closed(wire.Outcome) error // the agent's close, before anybody learns of it
	finished()                 // the channel is over
}

// plain is the use of a channel without events.
type plain struct{}

func (plain) event(wire.Event) error    { return broken("an event where none belongs") }
func (plain) closed(wire.Outcome) error { return nil }
func (plain) finished()                 {}

// channel is one operation under way.
type channel struct {
	g   *Guest
	id  uint32
	use use

	upload   *wire.Credit              // stream 0, or nil
	sated    bool                      // the agent takes no more of stream 0; reading loop only
	download [wire.Streams]*wire.Inbox // streams 1 and 2, or nil
	arrived  func(stream uint8, n int) // see Streams.Arrived

	moved struct { // for a Moment
		granted [wire.Streams]int // of what was received; guarded by the outbox, also:
		sent    int               // of stream 0
		over    bool              // its end was sent

		received [wire.Streams]int // the reading loop's, as are:
		allowed  int               // the agent's grants for stream 0
	}

	answer *answerTimer // nil: the agent may take its time

	abandoned atomic.Bool // we have sent close
	over      chan struct{}
	outcome   wire.Outcome // valid once over is closed
	err       error        // the connection's end, likewise
}

// shape says which streams a channel has.
type shape struct {
	upload    bool
	downloads int
	prompt    bool // the agent must get on with it
	arrived   func(stream uint8, n int)
}

// open asks for one operation.
func (g *Guest) open(ctx context.Context, req wire.Request, u use, s shape) (*channel, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	payload := wire.Encode(&req)
	if len(payload) > wire.MaxOpen {
		return nil, sandbox.Errorf(sandbox.CodeTooLarge, "the request has %d bytes, more than %d", len(payload), wire.MaxOpen)
	}
	c := g.newChannel(u, s, req.Op)
	if err := g.asked(ctx, c); err != nil {
		return nil, err
	}
	defer func() { <-g.asking }()
	if err := g.register(c, payload); err != nil {
		return nil, err
	}
	return c, nil
}

// asked waits until one more operation may be asked for: one caller at a time asks, when there
// is room. Whoever has been let in empties asking.
func (g *Guest) asked(ctx context.Context, c *channel) error {
	c.answer.wait()
	defer c.answer.rest()
	select {
	case g.asking <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.done:
		return g.Err()
	}
	defer context.AfterFunc(ctx, g.out.wake)()
	if !g.out.awaitRoom(func() bool { return ctx.Err() != nil }) {
		<-g.asking
		return context.Cause(ctx)
	}
	return nil
}

func (g *Guest) newChannel(u use, s shape, op wire.Op) *channel {
	c := &channel{g: g, use: u, arrived: s.arrived, over: make(chan struct{})}
	if s.upload {
		c.upload = wire.NewCredit(wire.UploadWindow(op))
	}
	for i := range s.downloads {
		c.download[1+i] = wire.NewInbox(wire.DownloadWindow(op))
	}
	if s.prompt {
		c.answer = newAnswerTimer(g.fellSilent)
	}
	return c
}

// register gives a channel its id and sends its open frame. Both happen under
// the lock, because ids must arrive in rising order.
func (g *Guest) register(c *channel, payload []byte) error {
	return g.registerBy(c, payload, g.out.add)
}

func (g *Guest) registerBy(c *channel, payload []byte, add func(func([]byte) []byte) bool) error {
	g.mu.Lock()
	switch {
	case g.err != nil:
		defer g.mu.Unlock()
		return g.err
	case len(g.channels) >= wire.MaxChannels || g.last == math.MaxUint32:
		defer g.mu.Unlock()
		return sandbox.Errorf(sandbox.CodeResourceUnavailable, "too many operations at once in one sandbox")
	}
	g.last++
	c.id = g.last
	g.channels[c.id] = c
	fits := add(func(b []byte) []byte { return wire.AppendFrame(b, wire.KindOpen, c.id, payload) })
	g.mu.Unlock()
	if !fits {
		g.end(gone(broken("the agent does not read")))
		return g.Err()
	}
	return nil
}

// flow handles data, eof and window.
func (c *channel) flow(f wire.Frame) error {
	stream, rest, err := f.Stream()
	if err != nil {
		return err
	}
	inbox := c.download[stream]
	upload := c.upload
	if stream != wire.Stdin {
		upload = nil
	}
	switch {
	case f.Kind == wire.KindData && inbox != nil:
		if c.arrived != nil {
			c.arrived(stream, len(rest))
		}
		c.moved.received[stream] += len(rest)
		return inbox.Put(rest)
	case f.Kind == wire.KindEOF && inbox != nil:
		return inbox.EOF()
	case f.Kind == wire.KindEOF && upload != nil && !c.sated:
		c.sated = true
		c.endUpload()
		return nil
	case f.Kind == wire.KindWindow && upload != nil:
		c.moved.allowed += int(wire.Grant(rest))
		return upload.Grant(wire.Grant(rest))
	}
	return broken("a frame for a stream that the channel does not have")
}

// finish is called once, when the channel is over.
func (c *channel) finish(o wire.Outcome, err error) {
	c.outcome, c.err = o, err
	c.endStreams((*wire.Inbox).Finish)
	close(c.over)
	c.use.finished()
}

// endStreams ends the upload, and the downloads in that way. The agent owes nothing more.
func (c *channel) endStreams(end func(*wire.Inbox)) {
	c.answer.end()
	if c.upload != nil {
		c.endUpload()
	}
	for _, inbox := range c.download {
		if inbox != nil {
			end(inbox)
		}
	}
}

// endUpload ends stream 0: who sends on it stops.
func (c *channel) endUpload() {
	c.upload.Close()
	c.g.out.wake()
}

// do asks for an operation without streams and waits for its end. Without a channel
// the operation was not asked for.
func (g *Guest) do(ctx context.Context, req wire.Request, u use) (*channel, wire.Outcome, error) {
	c, err := g.open(ctx, req, u, shape{prompt: true})
	if err != nil {
		return nil, wire.Outcome{}, err
	}
	o, err := c.wait(ctx)
	return c, o, err
}

// abandon tells the agent that nobody waits for the operation any more.
func (c *channel) abandon() {
	if c.abandoned.Swap(true) {
		return
	}
	c.endStreams((*wire.Inbox).Close)
	c.g.send(func(b []byte) []byte { return wire.AppendMessage(b, wire.KindClose, c.id, &wire.Outcome{}) })
}

// giveUpTimeout bounds how long giveUp waits: the agent may be hostile.
const giveUpTimeout = 5 * time.Second

// giveUp abandons the operation and waits until the agent has, too.
func (c *channel) giveUp(ctx context.Context) {
	c.abandon()
	late := time.NewTimer(giveUpTimeout)
	defer late.Stop()
	select {
	case <-c.over:
	case <-ctx.Done():
	case <-late.C:
	}
}

// wait waits for the end of the operation. When the context ends first the
// operation is given up.
func (c *channel) wait(ctx context.Context) (wire.Outcome, error) {
	c.answer.wait()
	select {
	case <-c.over:
		if !c.abandoned.Load() {
			return c.outcome, c.result()
		}
	case <-ctx.Done():
		c.abandon()
	}
	return wire.Outcome{}, context.Cause(ctx)
}

// result is the operation's error once it is over.
func (c *channel) result() error {
	if c.err != nil {
		return c.err
	}
	return faultError(c.outcome.Error)
}

// violated ends the connection because of what the channel's content shows.
func (c *channel) violated(what string) error {
	c.g.end(gone(broken(what)))
	return c.g.Err()
}

// How much is read from a caller's reader at once: a little at first, which is
// enough for what a person types, and more while there is more. A frame has
// whole pages, so that none is written twice.
const (
	firstChunk = 4 << 10
	chunk      = 60 << 10
	maxChunk   = 4 * chunk
)

// errSated means that the agent has ended an upload before its end.
var errSated = errors.New("the agent takes no more")

// pump sends r on stream 0 until r ends, and says how much it was. The error is
// r's, or errSated.
func (c *channel) pump(r io.Reader) (total int64, err error) {
	buf := make([]byte, firstChunk)
	for {
		n, err := r.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			c.answer.wait()
			k := c.push(func() bool { return false }, p)
			c.answer.rest()
			if k == 0 {
				return total, errSated
			}
			p = p[k:]
			total += int64(k)
		}
		if errors.Is(err, io.EOF) {
			c.sendEOF()
			return total, nil
		}
		if err != nil {
			return total, err
		}
		switch n {
		case firstChunk:
			buf = make([]byte, chunk)
		case chunk:
			buf = make([]byte, maxChunk)
		}
	}
}

// push sends a part of p on stream 0, as soon as its window and the connection have room. It
// is none once the stream has ended or stop says so; waking upload and outbox makes it ask.
func (c *channel) push(stop func() bool, p []byte) (sent int) {
	n := c.upload.TakeUnless(stop, len(p))
	if n == 0 {
		return 0
	}
	added := c.g.out.addUnless(func() bool { return stop() || c.upload.Closed() }, func(b []byte) []byte {
		c.moved.sent += n
		for part := range slices.Chunk(p[:n], chunk) {
			b = wire.AppendData(b, c.id, wire.Stdin, part)
		}
		return b
	})
	if !added {
		c.upload.Return(n)
		return 0
	}
	return n
}

// sendEOF ends stream 0.
func (c *channel) sendEOF() {
	c.g.send(func(b []byte) []byte {
		c.moved.over = true
		return wire.AppendEOF(b, c.id, wire.Stdin)
	})
}

// received releases what a download's Next returned and grants it.
func (c *channel) received(stream uint8) {
	n := c.download[stream].Release()
	if n == 0 || c.abandoned.Load() {
		return
	}
	c.grant(stream, n)
}

// grant lets the agent send so much more.
func (c *channel) grant(stream uint8, n int) {
	c.g.send(func(b []byte) []byte {
		c.moved.granted[stream] += n
		return wire.AppendWindow(b, c.id, stream, n)
	})
}
