// Package resume carries one stream of bytes, in both directions, over connections
// that may break. Each end keeps what it has sent until the other has said that it
// came; on the next connection both say how much has come, and go on from there. So
// whoever uses the stream notices nothing but time.
//
// The host dials (Dial), the agent accepts (Server). What travels on a connection:
//
//	host   "PFR1", secret, kind (1 byte: begin or go on), session (16 bytes), received (8 bytes)
//	agent  status (1 byte), received (8 bytes)
//	both   pieces: kind (1 byte), length or offset (8 bytes), and the bytes of data
//
// The secret is sent as it is: a connection must lead to the agent and be read by
// nobody else. Numbers are big-endian. Whoever does not keep to this ends the stream.
package resume

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

const (
	maxKept          = 256 << 10 // bytes sent that have perhaps not come; then a writer waits
	ackEvery         = 64 << 10  // bytes that come until it is said
	maxPiece         = 32 << 10
	handshakeTimeout = 10 * time.Second // for what is said before the first piece
	byeTimeout       = time.Second      // for the last one
)

// Kinds of pieces.
const (
	pieceData byte = iota + 1
	pieceAck       // all before this offset has come
	pieceBye       // the stream ends here
)

const pieceHeader = 9

var (
	errViolation = errors.New("resume: the other end does not keep to the protocol")
	errReplaced  = errors.New("resume: another host has taken the agent over")
	errUnknown   = errors.New("resume: the agent does not know this session any more")
)

// Stream is one end. Read is for one goroutine, Write for one at a time; the rest is
// safe for concurrent use. Somebody must be reading for Write to get on: what the other
// end has received is said among its data.
type Stream struct {
	session [sessionSize]byte

	mu       sync.Mutex
	changed  sync.Cond // anything of what follows has
	conn     io.ReadWriteCloser
	epoch    int    // of conn: what an earlier one still brings does not count
	kept     []byte // what the other end has perhaps not received
	base     uint64 // the offset of the first byte of it
	sent     uint64 // the offset up to which it went out on conn
	received uint64
	said     uint64 // how much of that the other end knows of
	expired  bool   // the deadline has passed
	deadline *time.Timer
	ended    error

	// Of Read alone: the connection's rest.
	readEpoch int
	in        *bufio.Reader
	left      int // bytes of the piece that has begun
}

func newStream() *Stream {
	s := &Stream{}
	s.changed.L = &s.mu
	go s.send()
	return s
}

// Read waits for bytes, on whichever connection they come. io.EOF: the other end has
// closed the stream.
func (s *Stream) Read(p []byte) (int, error) {
	for len(p) > 0 {
		epoch, err := s.awaitConn()
		if err != nil {
			return 0, err
		}
		n, err := s.readPiece(epoch, p)
		if n > 0 && s.count(epoch, n) {
			return n, nil
		}
		switch {
		case errors.Is(err, errViolation):
			s.end(err)
		case err != nil:
			s.drop(epoch)
		}
	}
	return 0, nil
}

// awaitConn waits for a connection and makes it the one that Read reads from.
func (s *Stream) awaitConn() (epoch int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.conn == nil && s.ended == nil && !s.expired {
		s.changed.Wait()
	}
	if err := s.failure(); err != nil {
		return 0, err
	}
	if s.readEpoch != s.epoch {
		s.readEpoch, s.left, s.in = s.epoch, 0, bufio.NewReaderSize(s.conn, 4096)
	}
	return s.epoch, nil
}

// failure is why nothing can be read or written. The lock is held.
func (s *Stream) failure() error {
	if s.ended == nil && s.expired {
		return os.ErrDeadlineExceeded
	}
	return s.ended
}

// readPiece reads some data into p. It is 0 bytes when another piece came.
func (s *Stream) readPiece(epoch int, p []byte) (int, error) {
	if s.left > 0 {
		n, err := s.in.Read(p[:min(len(p), s.left)])
		s.left -= n
		return n, err
	}
	var head [pieceHeader]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return 0, err
	}
	value := binary.BigEndian.Uint64(head[1:])
	switch head[0] {
	case pieceData:
		if value == 0 || value > maxPiece {
			return 0, errViolation
		}
		s.left = int(value) //nolint:gosec // bounded
		return 0, nil
	case pieceAck:
		return 0, s.acknowledged(epoch, value)
	case pieceBye:
		s.end(io.EOF)
		return 0, nil
	}
	return 0, errViolation
}

// count adds bytes that came on a connection, unless there is another one by now, on
// which they come again.
func (s *Stream) count(epoch, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch || s.ended != nil {
		return false
	}
	s.received += uint64(n) //nolint:gosec // never negative
	if s.received-s.said >= ackEvery {
		s.changed.Broadcast()
	}
	return true
}

// acknowledged lets go of what has come, if that was said on the connection that there
// is now: the greeting of a later one has said more.
func (s *Stream) acknowledged(epoch int, upTo uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return nil
	}
	return s.release(upTo)
}

// release lets go of what has come. The lock is held.
func (s *Stream) release(upTo uint64) error {
	if upTo < s.base || upTo > s.base+uint64(len(s.kept)) {
		return errViolation
	}
	if upTo == s.base {
		return nil
	}
	s.kept = s.kept[:copy(s.kept, s.kept[upTo-s.base:])]
	s.base, s.sent = upTo, max(s.sent, upTo)
	s.changed.Broadcast()
	return nil
}

// Write keeps the bytes and has them sent. It waits while too many are on their way.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := 0
	for done < len(p) {
		for len(s.kept) >= maxKept && s.failure() == nil {
			s.changed.Wait()
		}
		if err := s.failure(); err != nil {
			return done, err
		}
		n := min(len(p)-done, maxKept-len(s.kept))
		s.kept = append(s.kept, p[done:done+n]...)
		done += n
		s.changed.Broadcast()
	}
	return done, nil
}

// send is the goroutine that writes to the connection there is, until the stream ends.
func (s *Stream) send() {
	piece := make([]byte, 0, 2*pieceHeader+maxPiece)
	for {
		s.mu.Lock()
		for s.ended == nil && (s.conn == nil || s.nothingToSend()) {
			s.changed.Wait()
		}
		conn, epoch, ended := s.conn, s.epoch, s.ended
		if ended == nil {
			piece = s.next(piece[:0])
		}
		s.mu.Unlock()
		if ended != nil {
			goodbye(conn)
			return
		}
		if _, err := conn.Write(piece); err != nil {
			s.drop(epoch)
			_ = conn.Close() // of an ended stream, too: a goodbye would be read as the piece's rest
		}
	}
}

// nothingToSend is for who holds the lock.
func (s *Stream) nothingToSend() bool {
	return s.sent == s.base+uint64(len(s.kept)) && s.received-s.said < ackEvery
}

// next appends the next pieces to b. The lock is held.
func (s *Stream) next(b []byte) []byte {
	if s.received > s.said {
		b = appendPiece(b, pieceAck, s.received)
		s.said = s.received
	}
	if rest := s.kept[s.sent-s.base:]; len(rest) > 0 {
		rest = rest[:min(len(rest), maxPiece)]
		b = append(appendPiece(b, pieceData, uint64(len(rest))), rest...)
		s.sent += uint64(len(rest))
	}
	return b
}

func appendPiece(b []byte, kind byte, value uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, kind), value)
}

// goodbye tells the other end that the stream is over, as far as it listens.
func goodbye(conn io.ReadWriteCloser) {
	if conn == nil {
		return
	}
	setDeadline(conn, byeTimeout)
	_, _ = conn.Write(appendPiece(nil, pieceBye, 0))
	_ = conn.Close()
}

// setDeadline ends all input and output on a connection after a time; 0: never.
func setDeadline(conn any, d time.Duration) {
	until := time.Time{}
	if d > 0 {
		until = time.Now().Add(d)
	}
	if c, ok := conn.(interface{ SetDeadline(t time.Time) error }); ok {
		_ = c.SetDeadline(until) // a connection without deadlines ends by itself
	}
}

// drop gives a connection up, unless there is another one already.
func (s *Stream) drop(epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch && s.ended == nil {
		s.dropConn()
	}
}

// dropConn is drop, by who holds the lock. From here on nothing that the connection
// still brings counts.
func (s *Stream) dropConn() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn = nil
	s.epoch++
	s.changed.Broadcast()
}

// offer begins to take up another connection: it says how much has come.
func (s *Stream) offer() (epoch int, received uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropConn()
	return s.epoch, s.received
}

// accept is offer to an end that has received so much, unless it comes late: on another
// connection that end has said more since, and has given this one up.
func (s *Stream) accept(theirs uint64) (epoch int, received uint64, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if theirs < s.base {
		return 0, 0, true
	}
	s.dropConn()
	return s.epoch, s.received, false
}

// hasEnded says whether the stream has.
func (s *Stream) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil
}

// attach goes on on a connection whose other end has received so much.
func (s *Stream) attach(conn io.ReadWriteCloser, epoch int, theirs, ours uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return s.ended
	case s.epoch != epoch: // another one was faster
		return os.ErrClosed
	}
	if err := s.release(theirs); err != nil {
		return err
	}
	s.conn, s.sent, s.said = conn, theirs, ours
	s.epoch++
	s.changed.Broadcast()
	return nil
}

// progress is what changes when a connection was of use.
func (s *Stream) progress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base + s.received
}

// end ends the stream, once, for a reason that all calls return from now on.
func (s *Stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return
	}
	s.ended = why
	if s.conn != nil { // who is still writing has so long
		setDeadline(s.conn, byeTimeout)
	}
	s.changed.Broadcast()
}

// Close ends the stream at both ends.
func (s *Stream) Close() error {
	s.end(os.ErrClosed)
	return nil
}

// SetDeadline ends all reading and writing at a moment; the zero time is never. A call
// that waits is ended by breaking the connection, which is made again if the deadline
// is taken back.
func (s *Stream) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline != nil {
		s.deadline.Stop()
		s.deadline = nil
	}
	s.expired = false
	s.changed.Broadcast()
	if t.IsZero() {
		return nil
	}
	var deadline *time.Timer
	deadline = time.AfterFunc(time.Until(t), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended == nil && s.deadline == deadline { // it has not been changed at this moment
			s.expired = true
			s.dropConn()
		}
	})
	s.deadline = deadline
	return nil
}
