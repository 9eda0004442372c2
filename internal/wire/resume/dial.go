package resume

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

// SecretSize is the length of what shows the agent that a connection is the host's.
const SecretSize = 32

// Secret is what a machine's host and its agent know, and nobody else.
type Secret [SecretSize]byte

const (
	sessionSize = 16
	magic       = "PFR1"
	helloSize   = len(magic) + SecretSize + 1 + sessionSize + 8
	answerSize  = 9
)

// Kinds of connections.
const (
	kindBegin  byte = iota + 1 // of a stream
	kindResume                 // of one that there has been
)

// Answers of the agent.
const (
	statusGo      byte = iota + 1
	statusUnknown      // a session to be gone on with, of which the agent knows nothing (any more)
)

// The pause between two attempts to connect, which doubles while they fail.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Dialer makes one connection to the agent.
type Dialer func(ctx context.Context) (io.ReadWriteCloser, error)

// Dial begins a stream to an agent. When a connection cannot be made, or breaks, it makes
// another one: until ctx ends, as long as there has been none, and then for as long as it
// takes, until the stream is closed or dead is, which says that the machine is. The agent
// ends the stream of an earlier host, if there is one.
func Dial(ctx context.Context, secret Secret, dead <-chan struct{}, dial Dialer) (*Stream, error) {
	s := newStream()
	for i := range s.session { // unlike all others; it is no secret
		s.session[i] = byte(rand.Uint32()) //nolint:gosec // a part of it
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := s.connect(ctx, secret, kindBegin, dial)
		if err == nil {
			go s.keep(secret, dead, dial)
			return s, nil
		}
		select {
		case <-ctx.Done():
		case <-dead:
		case <-time.After(pause):
			continue
		}
		s.end(err)
		return nil, err
	}
}

// keep makes a connection whenever there is none.
func (s *Stream) keep(secret Secret, dead <-chan struct{}, dial Dialer) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-dead:
			s.end(io.ErrUnexpectedEOF)
		case <-over:
		}
		cancel()
	}()
	pause, before := firstPause, s.progress()
	for s.lacksConn() {
		if err := s.connect(ctx, secret, kindResume, dial); errors.Is(err, errUnknown) || errors.Is(err, errViolation) {
			s.end(err)
			return
		}
		if now := s.progress(); now != before {
			pause, before = firstPause, now
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// lacksConn waits until there is no connection; false: the stream has ended.
func (s *Stream) lacksConn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ended == nil && (s.conn != nil || s.expired) {
		s.changed.Wait()
	}
	return s.ended == nil
}

// connect makes one connection and goes on on it.
func (s *Stream) connect(ctx context.Context, secret Secret, kind byte, dial Dialer) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	epoch, received := s.offer()
	theirs, err := greet(conn, secret, kind, s.session, received)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.attach(conn, epoch, theirs, received)
	}
	if err != nil {
		stop()
		_ = conn.Close()
	}
	return err
}

// greet says who we are, and returns how much the agent has received.
func greet(conn io.ReadWriter, secret Secret, kind byte, session [sessionSize]byte, received uint64) (uint64, error) {
	hello := append(append(append([]byte(magic), secret[:]...), kind), session[:]...)
	if _, err := conn.Write(binary.BigEndian.AppendUint64(hello, received)); err != nil {
		return 0, err
	}
	var answer [answerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return 0, err
	}
	switch answer[0] {
	case statusGo:
		return binary.BigEndian.Uint64(answer[1:]), nil
	case statusUnknown:
		return 0, errUnknown
	}
	return 0, errViolation
}
