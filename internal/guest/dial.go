package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// linger is how long a closed connection may still deliver what was written,
// to a server that does not read.
const linger = 10 * time.Second

// Dial connects to a TCP server in the sandbox, on 127.0.0.1 or else on ::1.
// When none listens there the error has code port_closed. The connection is a
// *Conn; it lives until it is closed or the sandbox's connection ends, whatever
// becomes of ctx. At most wire.MaxDials are open at once, by the host's own count.
func (g *Guest) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "port", Message: fmt.Sprintf("%d is not a port", port), Hint: "ports are 1 to 65535"}
	}
	d := &dialing{release: func() { g.dials.Add(-1) }, opened: make(chan struct{})}
	if g.dials.Add(1) > wire.MaxDials {
		g.dials.Add(-1)
		return nil, &sandbox.Error{
			Code: sandbox.CodeResourceUnavailable, Message: fmt.Sprintf("%d connections into the sandbox are open already", wire.MaxDials), Hint: "close some of them",
		}
	}
	req := wire.Request{Op: wire.OpDial, Dial: &wire.DialRequest{Port: port}}
	c, err := g.open(ctx, req, d, shape{upload: true, downloads: 1})
	if err != nil {
		g.dials.Add(-1)
		return nil, err
	}
	select {
	case <-d.opened:
	case <-c.over:
		if err := c.result(); err != nil {
			return nil, portError(port, err)
		}
	case <-ctx.Done():
		c.abandon()
		return nil, context.Cause(ctx)
	}
	return newConn(c, d, port), nil
}

func portError(port int, err error) error {
	e := sandbox.AsError(err)
	if e.Code != sandbox.CodePortClosed {
		return err
	}
	return &sandbox.Error{
		Code: e.Code, Message: fmt.Sprintf("nothing listens on port %d in the sandbox", port),
		Hint: fmt.Sprintf("start a server inside that listens on 127.0.0.1:%d", port),
	}
}

// dialing is the use of a connection's channel.
type dialing struct {
	release func() // its place among those that may be open
	opened  chan struct{}
	is      bool // opened is closed; reading loop only

	mu   sync.Mutex
	over bool
	late *time.Timer // gives the channel up
}

// lingers hands over the timer that is stopped when the channel is over.
func (d *dialing) lingers(late *time.Timer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late = late; d.over {
		late.Stop()
	}
}

func (d *dialing) finished() {
	d.release()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over = true; d.late != nil {
		d.late.Stop()
	}
}

func (d *dialing) event(e wire.Event) error {
	if e.Kind != wire.EventOpened || d.is {
		return broken("an event where none belongs")
	}
	d.is = true
	close(d.opened)
	return nil
}

func (d *dialing) closed(o wire.Outcome) error {
	if d.is == (o.Error != nil) {
		return broken("a connection that ends without having been opened")
	}
	return nil
}

// Conn is a connection to a server in a sandbox. It is a net.Conn with
// CloseWrite. Both directions are flow-controlled: it holds at most one window
// of what the server sends.
type Conn struct {
	c             *channel
	d             *dialing
	port          int
	reading       sync.Mutex // one Read at a time
	rest          []byte     // returned by the inbox and not read yet
	ended         bool       // no more comes; with reading
	writing       sync.Mutex // one Write at a time
	finished      bool       // the end of stream 0 was sent; with writing
	rdline, wline deadline
	once          sync.Once
	closed        atomic.Bool
	reset         atomic.Bool // Close breaks it off
}

func newConn(c *channel, d *dialing, port int) *Conn {
	k := &Conn{c: c, d: d, port: port}
	k.rdline.wake = c.download[wire.Stdout].Wake
	k.wline.wake = k.wakeWriter
	return k
}

// Read reads what the server sent; io.EOF when it has shut its side.
func (k *Conn) Read(p []byte) (int, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	switch {
	case k.closed.Load():
		return 0, net.ErrClosed
	case k.rdline.over():
		return 0, os.ErrDeadlineExceeded
	case len(p) == 0:
		return 0, nil
	}
	if err := k.fill(); err != nil {
		return 0, err
	}
	n := copy(p, k.rest)
	if k.rest = k.rest[n:]; len(k.rest) == 0 {
		k.c.received(wire.Stdout)
	}
	return n, nil
}

// fill waits until there is something in rest.
func (k *Conn) fill() error {
	if len(k.rest) > 0 {
		return nil
	}
	if k.ended {
		return k.endOf(io.EOF)
	}
	k.rest = k.c.download[wire.Stdout].NextUnless(func() bool { return k.closed.Load() || k.rdline.over() })
	if k.rest != nil {
		return nil
	}
	switch {
	case k.closed.Load():
		return net.ErrClosed
	case k.rdline.over():
		return os.ErrDeadlineExceeded
	}
	k.ended = true
	return k.endOf(io.EOF)
}

// endOf says why a direction has ended: with the sandbox's connection, or as usual.
func (k *Conn) endOf(usual error) error {
	select {
	case <-k.c.over:
		if k.c.err != nil {
			return k.c.err
		}
	default:
	}
	return usual
}

// errShut is what a Write returns once the server takes no more.
var errShut = errors.New("the server in the sandbox takes no more")

// Write sends to the server. It waits while the server, or the sandbox's agent, does not read.
func (k *Conn) Write(p []byte) (int, error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	stop := func() bool { return k.closed.Load() || k.wline.over() }
	done := 0
	for {
		switch {
		case k.closed.Load() || k.finished:
			return done, net.ErrClosed
		case k.wline.over():
			return done, os.ErrDeadlineExceeded
		case done == len(p):
			return done, nil
		}
		n := k.c.push(stop, p[done:min(len(p), done+maxChunk)])
		if n == 0 && k.c.upload.Closed() {
			return done, k.endOf(errShut)
		}
		done += n
	}
}

// wakeWriter makes a Write that waits look again.
func (k *Conn) wakeWriter() {
	k.c.upload.Wake()
	k.c.g.out.wake()
}

// CloseWrite tells the server that no more comes. Reading goes on.
func (k *Conn) CloseWrite() error {
	k.writing.Lock()
	defer k.writing.Unlock()
	if k.closed.Load() {
		return net.ErrClosed
	}
	k.finish()
	return nil
}

// finish sends the end of stream 0, once. writing is held.
func (k *Conn) finish() {
	if !k.finished {
		k.finished = true
		k.c.g.send(func(b []byte) []byte { return wire.AppendEOF(b, k.c.id, wire.Stdin) })
	}
}

// SetLinger says what Close does with what was written and not delivered: with 0 it is
// dropped, and the other end learns that the connection did not end well. With anything
// else it is delivered, as without this call.
func (k *Conn) SetLinger(seconds int) error {
	k.reset.Store(seconds == 0)
	return nil
}

// Close ends the connection. What was written is still delivered, to a server
// that reads it within some seconds.
func (k *Conn) Close() error {
	err := net.ErrClosed
	k.once.Do(func() {
		err = nil
		k.closed.Store(true)
		k.rdline.stop()
		k.wline.stop()
		k.c.download[wire.Stdout].Wake()
		k.wakeWriter()
		k.writing.Lock() // a Write under way returns first
		defer k.writing.Unlock()
		select {
		case <-k.c.over:
			return
		default:
		}
		if k.reset.Load() {
			k.c.abandon()
			return
		}
		k.finish()
		k.c.download[wire.Stdout].Close()
		k.c.g.send(func(b []byte) []byte { return wire.AppendEOF(b, k.c.id, wire.Stdout) })
		k.d.lingers(time.AfterFunc(linger, k.c.abandon))
	})
	return err
}

// LocalAddr is the sandbox's loopback.
func (k *Conn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// RemoteAddr is the server's port on the sandbox's loopback.
func (k *Conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: k.port} }

// SetDeadline sets both deadlines.
func (k *Conn) SetDeadline(t time.Time) error {
	return errors.Join(k.SetReadDeadline(t), k.SetWriteDeadline(t))
}

// SetReadDeadline ends a Read that waits then. The zero time is never.
func (k *Conn) SetReadDeadline(t time.Time) error { return k.setDeadline(&k.rdline, t) }

// SetWriteDeadline ends a Write that waits then. The zero time is never.
func (k *Conn) SetWriteDeadline(t time.Time) error { return k.setDeadline(&k.wline, t) }

func (k *Conn) setDeadline(d *deadline, t time.Time) error {
	if k.closed.Load() {
		return net.ErrClosed
	}
	d.set(t)
	return nil
}

// deadline is a moment after which a direction waits no longer.
type deadline struct {
	wake func() // makes those who wait look again

	mu    sync.Mutex
	timer *time.Timer
	round int // of set, so that an old timer changes nothing
	past  bool
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.round++
	left := time.Until(t)
	d.past = !t.IsZero() && left <= 0
	if !t.IsZero() && left > 0 {
		round := d.round
		d.timer = time.AfterFunc(left, func() { d.expire(round) })
	}
	past := d.past
	d.mu.Unlock()
	if past {
		d.wake()
	}
}

func (d *deadline) expire(round int) {
	d.mu.Lock()
	mine := d.round == round
	d.past = d.past || mine
	d.mu.Unlock()
	if mine {
		d.wake()
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round++
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}
