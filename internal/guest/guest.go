package guest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Why a connection ended; Err and the errors of all calls wrap one of these,
// ErrSilent or a *wire.Violation.
var (
	ErrGone   = errors.New("the connection to the sandbox's agent has ended")
	ErrClosed = errors.New("the connection to the sandbox's agent was closed")
)

// handshakeTime is how long the agent may take to say hello, unless the
// context ends earlier.
const handshakeTime = 10 * time.Second

// Guest is the inside of one sandbox. All methods are safe for concurrent use.
// Calls return promptly once their context or the connection ends.
type Guest struct {
	conn    Link
	hello   wire.Hello // ours
	build   string
	out     *outbox
	reading sync.WaitGroup
	done    chan struct{}
	tap     *tap
	frames  *wire.Reader
	asking  chan struct{} // has one while a caller asks for an operation
	dials   atomic.Int32  // connections into the sandbox: that the agent counts them, too, is no bound of ours

	mu       sync.Mutex
	err      error // why the connection ended
	channels map[uint32]*channel
	last     uint32
}

// Link is a stream to an agent and back. What waits on it ends at its deadline.
type Link interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// New greets the agent on a fresh connection and takes the connection over;
// it is closed when New fails. hello tells the agent its user and home; the
// version is filled in.
func New(ctx context.Context, conn Link, hello wire.Hello) (*Guest, error) {
	g := newGuest(conn, hello)
	if err := g.greet(ctx, g.frames); err != nil {
		_ = conn.Close()
		return nil, err
	}
	g.reading.Go(func() { g.read(g.frames) })
	return g, nil
}

func newGuest(conn Link, hello wire.Hello) *Guest {
	hello.Version = wire.Version
	g := &Guest{conn: conn, hello: hello, done: make(chan struct{}), asking: make(chan struct{}, 1), channels: map[uint32]*channel{}, tap: &tap{conn: conn}}
	g.frames = wire.NewReader(g.tap, wire.Agent)
	g.out = newOutbox(conn, func(err error) { g.end(gone(err)) })
	return g
}

// greet exchanges hellos.
func (g *Guest) greet(ctx context.Context, frames *wire.Reader) error {
	if err := g.conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return gone(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = g.conn.SetDeadline(time.Unix(1, 0)) })
	err := g.exchange(frames)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return gone(err)
	}
	return g.conn.SetDeadline(time.Time{})
}

func (g *Guest) exchange(frames *wire.Reader) error {
	f, err := frames.Next()
	if err != nil {
		return err
	}
	var theirs wire.Hello
	if f.Kind != wire.KindHello {
		return broken("the first frame is not hello")
	}
	if err := wire.Decode(f.Payload, &theirs); err != nil {
		return err
	}
	if theirs.Version != wire.Version {
		return broken("the agent speaks another version")
	}
	g.build = sandbox.SafeText(theirs.Agent, 64)
	_, err = g.conn.Write(wire.AppendMessage(nil, wire.KindHello, 0, &g.hello))
	return err
}

// AgentBuild returns the build version that the agent claims.
func (g *Guest) AgentBuild() string { return g.build }

// Done is closed when the connection has ended, for whatever reason.
func (g *Guest) Done() <-chan struct{} { return g.done }

// Err says why the connection ended: a *sandbox.Error of code protocol that
// wraps ErrGone, ErrClosed, ErrSilent or a *wire.Violation. It is nil before that.
func (g *Guest) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Close ends the connection, which ends the agent unless it listens for another. All calls under way return.
func (g *Guest) Close() error {
	g.end(&sandbox.Error{Code: sandbox.CodeProtocol, Message: ErrClosed.Error(), Err: ErrClosed})
	g.reading.Wait()
	g.out.drained()
	return nil
}

func broken(what string) error { return &wire.Violation{What: what} }

// gone turns what ended a connection into the error that callers see.
func gone(err error) error {
	var v *wire.Violation
	if errors.As(err, &v) {
		return &sandbox.Error{Code: sandbox.CodeProtocol, Message: v.Error(), Err: v}
	}
	return &sandbox.Error{Code: sandbox.CodeProtocol, Message: ErrGone.Error(), Err: errors.Join(ErrGone, err)}
}

// end ends the connection once, with the first reason. The reading loop then
// stops and finishes the channels.
func (g *Guest) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return
	}
	g.err = err
	close(g.done)
	_ = g.conn.Close()
	g.out.close()
}

// send adds frames to the outbox.
func (g *Guest) send(f func(b []byte) []byte) {
	if !g.out.add(f) {
		g.end(gone(broken("the agent does not read")))
	}
}

// read acts on what the agent sends. It never blocks on anything but the
// connection, and it alone changes the state of channels.
func (g *Guest) read(frames *wire.Reader) {
	var err error
	for err == nil {
		var f wire.Frame
		if f, err = frames.Next(); err == nil {
			err = g.handle(f)
		}
	}
	g.end(gone(err))
	g.mu.Lock()
	channels, err := g.channels, g.err
	g.channels = nil
	g.mu.Unlock()
	for _, c := range channels {
		c.finish(wire.Outcome{}, err)
	}
}

func (g *Guest) handle(f wire.Frame) error {
	if f.Kind == wire.KindHello {
		return broken("a second hello")
	}
	g.mu.Lock()
	c := g.channels[f.Channel]
	g.mu.Unlock()
	if c != nil {
		c.answer.progress()
	}
	switch {
	case c == nil:
		return broken("a frame for a channel that is not open")
	case f.Kind == wire.KindClose:
		return g.closed(c, f)
	case c.abandoned.Load():
		return nil
	case f.Kind == wire.KindEvent:
		var e wire.Event
		if err := wire.Decode(f.Payload, &e); err != nil {
			return err
		}
		return c.use.event(e)
	}
	return c.flow(f)
}

// closed ends a channel as the agent says.
func (g *Guest) closed(c *channel, f wire.Frame) error {
	var o wire.Outcome
	if err := wire.Decode(f.Payload, &o); err != nil {
		return err
	}
	if err := checkOutcome(o); err != nil {
		return err
	}
	if !c.abandoned.Load() {
		if err := c.use.closed(o); err != nil {
			return err
		}
	}
	g.mu.Lock()
	delete(g.channels, c.id)
	g.mu.Unlock()
	c.finish(o, nil)
	return nil
}
