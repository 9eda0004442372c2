package fake

import (
	"io"
	"net"
	"sync"

	"pinfold/internal/wire"
)

// channel is one operation under way.
type channel struct {
	a       *agent
	id      uint32
	process *Process // nil unless the operation is a program

	in   *wire.Inbox                // stream 0
	out  [wire.Streams]*wire.Credit // streams 1 and 2
	over sync.Once
	gone chan struct{} // closed with the streams

	last sync.Mutex // held while a frame is sent
	shut bool       // the last one was: a killed program may still write

	mu     sync.Mutex
	socket *net.UnixConn // of a connection
}

func newChannel(a *agent, id uint32, op wire.Op) *channel {
	c := &channel{a: a, id: id, in: wire.NewInbox(wire.UploadWindow(op)), gone: make(chan struct{})}
	c.out[wire.Stdout], c.out[wire.Stderr] = wire.NewCredit(wire.WindowSize), wire.NewCredit(wire.WindowSize)
	return c
}

// flow handles data, eof and window.
func (c *channel) flow(f wire.Frame) error {
	stream, rest, err := f.Stream()
	if err != nil {
		return err
	}
	switch {
	case f.Kind == wire.KindData && stream == wire.Stdin:
		return c.in.Put(rest)
	case f.Kind == wire.KindEOF && stream == wire.Stdin:
		return c.in.EOF()
	case f.Kind == wire.KindWindow && stream != wire.Stdin:
		return c.out[stream].Grant(wire.Grant(rest))
	case f.Kind == wire.KindEOF:
		c.out[stream].Close()
		c.readNoMore()
		return nil
	}
	return &wire.Violation{What: "a frame for a stream that the channel does not have"}
}

// close stops all streams: readers and writers return.
func (c *channel) close() {
	c.over.Do(func() {
		c.in.Close()
		c.out[wire.Stdout].Close()
		c.out[wire.Stderr].Close()
		close(c.gone)
		c.readNoMore()
	})
}

// finish sends the last frame.
func (c *channel) finish(o wire.Outcome) {
	c.close()
	c.last.Lock()
	c.shut = true
	c.a.message(wire.KindClose, c.id, &o)
	c.last.Unlock()
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	delete(c.a.channels, c.id)
}

// send sends a frame, unless the last one was sent.
func (c *channel) send(frame []byte) bool {
	c.last.Lock()
	defer c.last.Unlock()
	return !c.shut && c.a.frame(frame)
}

// inbound reads stream 0.
func (c *channel) inbound() io.Reader { return &inbound{c: c} }

type inbound struct {
	c    *channel
	rest []byte
	lent bool
}

func (r *inbound) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.lent {
			if n := r.c.in.Release(); n > 0 {
				r.c.send(wire.AppendWindow(nil, r.c.id, wire.Stdin, n))
			}
		}
		r.rest = r.c.in.Next()
		if r.lent = r.rest != nil; !r.lent {
			return 0, io.EOF
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// outbound writes stream 1 or 2.
func (c *channel) outbound(stream uint8) io.Writer { return &outbound{c, stream} }

type outbound struct {
	c      *channel
	stream uint8
}

func (w *outbound) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n := w.c.out[w.stream].Take(min(len(b)-done, wire.MaxData))
		if n == 0 || !w.c.send(wire.AppendData(nil, w.c.id, w.stream, b[done:done+n])) {
			return done, errClosed
		}
		done += n
	}
	return len(b), nil
}
