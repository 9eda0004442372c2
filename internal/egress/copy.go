package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/sandbox"
)

// bufferSize is of what one direction of a connection has on its way at most, beside the
// kernel's own buffers: who does not read stops who writes.
const bufferSize = maxHead

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

func takeBuffer() *[]byte  { return buffers.Get().(*[]byte) } //nolint:errcheck // nothing else is in there
func giveBuffer(b *[]byte) { buffers.Put(b) }

// up sends bytes of the guest's to the server.
func (c *connection) up(data []byte) error {
	return c.pass(c.server, data, &c.relay.ledger.up, &c.endpoint.up, sandbox.DeniedBytesUp)
}

// pass sends bytes on, as far as the limit allows.
func (c *connection) pass(to net.Conn, data []byte, left, count *atomic.Int64, reason sandbox.DenialReason) error {
	if len(data) == 0 {
		return nil
	}
	if left.Add(-int64(len(data))) < 0 {
		left.Add(int64(len(data)))
		c.relay.ledger.deny(c.door.Host, c.door.Port, reason, "")
		return errLimits
	}
	_ = to.SetWriteDeadline(time.Now().Add(idleTimeout))
	count.Add(int64(len(data))) // before: who gets them may end the program, and its result is to have them
	n, err := to.Write(data)
	count.Add(int64(n - len(data)))
	c.touch()
	return err
}

// copyUp sends everything that the guest still has to the server.
func (c *connection) copyUp(from io.Reader) error {
	_ = c.guest.SetReadDeadline(time.Now().Add(idleTimeout))
	if err := c.copy(from, c.guest, c.up); err != nil {
		return err
	}
	return c.endOfGuest()
}

// copyDown sends the guest what the server says.
func (c *connection) copyDown() {
	_ = c.server.SetReadDeadline(time.Now().Add(idleTimeout))
	err := c.copy(c.server, c.server, func(data []byte) error {
		return c.pass(c.guest, data, &c.relay.ledger.down, &c.endpoint.down, sandbox.DeniedBytesDown)
	})
	if err != nil || closeWrite(c.guest) != nil {
		c.cut()
	}
}

// copy passes on what is read until its end. Reading from a connection ends when nothing
// has moved for long, in either direction.
func (c *connection) copy(from io.Reader, conn net.Conn, pass func([]byte) error) error {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	renewed := time.Now()
	for {
		n, err := from.Read(*buffer)
		if passErr := pass((*buffer)[:n]); passErr != nil {
			return passErr
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && c.waits():
		default:
			return err
		}
		if now := time.Now(); err != nil || now.Sub(renewed) > idleTimeout/8 {
			renewed = now
			_ = conn.SetReadDeadline(now.Add(idleTimeout))
		}
	}
}

// endOfGuest tells the server that the guest has said everything.
func (c *connection) endOfGuest() error {
	if c.server == nil {
		return io.EOF
	}
	if c.answered != nil { // who takes requests would give up those that it has
		c.answered.wait(c.passed)
	}
	return closeWrite(c.server)
}

func (c *connection) touch() { c.moved.Store(time.Now().UnixNano()) }

// waits says whether something has moved not too long ago.
func (c *connection) waits() bool {
	return time.Since(time.Unix(0, c.moved.Load())) < idleTimeout
}

// soon reads from the guest what decides: it must come in time, and what follows a
// decision may take its time.
func (c *connection) soon(from net.Conn) io.Reader { return &soonReader{c, from} }

type soonReader struct {
	c    *connection
	from net.Conn
}

func (s *soonReader) Read(b []byte) (int, error) {
	by := time.Now().Add(idleTimeout)
	if s.c.undecided = s.c.server == nil; s.c.undecided {
		by = s.c.begun.Add(decideTimeout)
	}
	_ = s.from.SetReadDeadline(by)
	n, err := s.from.Read(b)
	for errors.Is(err, os.ErrDeadlineExceeded) && n == 0 && s.c.server != nil && s.c.waits() {
		_ = s.from.SetReadDeadline(time.Now().Add(idleTimeout))
		n, err = s.from.Read(b)
	}
	return n, err
}
