package resume

import (
	"encoding/binary"
	"io"
	"sync"
)

// maxStrangers is how many connections may be open that have not shown the secret yet.
// The oldest makes room: whoever has the secret shows it at once.
const maxStrangers = 16

// Server is the agent's end: it holds the stream of the host that came last.
type Server struct {
	secret  Secret
	streams chan *Stream

	mu        sync.Mutex
	current   *Stream
	began     uint64 // which connection, in the order of arrival, began the current stream
	arrivals  uint64
	strangers []io.Closer
}

// NewServer returns a server without a stream.
func NewServer(secret Secret) *Server {
	return &Server{secret: secret, streams: make(chan *Stream, 1)}
}

// Next waits for the stream of another host. The one before has ended by then, or is
// about to.
func (v *Server) Next() *Stream { return <-v.streams }

// Accept takes a connection that was made to the agent: it will carry a stream, or is
// closed since it does not come from the host. Accept waits for nothing, and is called in
// the order in which the connections were made.
func (v *Server) Accept(conn io.ReadWriteCloser) { go v.greeted(conn, v.arrived(conn)) }

// greeted reads who a connection comes from.
func (v *Server) greeted(conn io.ReadWriteCloser, arrival uint64) {
	setDeadline(conn, handshakeTimeout)
	var hello [helloSize]byte
	_, err := io.ReadFull(conn, hello[:])
	v.known(conn)
	rest := hello[len(magic):]
	if err != nil || string(hello[:len(magic)]) != magic || !same(rest[:SecretSize], v.secret[:]) {
		_ = conn.Close()
		return
	}
	rest = rest[SecretSize:]
	v.host(conn, arrival, rest[0], [sessionSize]byte(rest[1:]), binary.BigEndian.Uint64(rest[1+sessionSize:]))
}

// same compares in a time that says nothing about where two secrets differ.
func same(a, b []byte) bool {
	var differ byte
	for i := range a {
		differ |= a[i] ^ b[i]
	}
	return differ == 0
}

// arrived remembers a connection of nobody knows whom, and counts it.
func (v *Server) arrived(conn io.Closer) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.strangers) == maxStrangers {
		_ = v.strangers[0].Close()
		v.strangers = v.strangers[1:]
	}
	v.strangers = append(v.strangers, conn)
	v.arrivals++
	return v.arrivals
}

func (v *Server) known(conn io.Closer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, c := range v.strangers {
		if c == conn {
			v.strangers = append(v.strangers[:i:i], v.strangers[i+1:]...)
			return
		}
	}
}

// host goes on with a session on a connection of the host's, or begins one.
func (v *Server) host(conn io.ReadWriteCloser, arrival uint64, kind byte, session [sessionSize]byte, theirs uint64) {
	s := v.stream(arrival, kind, session)
	if s == nil {
		_, _ = conn.Write(answer(statusUnknown, 0))
		_ = conn.Close()
		return
	}
	epoch, received, late := s.accept(theirs)
	if late {
		_ = conn.Close()
		return
	}
	_, err := conn.Write(answer(statusGo, received))
	setDeadline(conn, 0)
	if err == nil {
		err = s.attach(conn, epoch, theirs, received)
	}
	switch {
	case err == nil:
	case err == errViolation: //nolint:errorlint // ours, never wrapped
		s.end(err)
		_ = conn.Close()
	case s.hasEnded(): // after the answer, and before there was a connection to say so on
		goodbye(conn)
	default:
		_ = conn.Close()
	}
}

// stream returns a session's stream: nil when it is to go on and is not the current one,
// or has ended while the host could not be told, or is to begin and comes from a host
// before the current one, whose greeting is only read now.
func (v *Server) stream(arrival uint64, kind byte, session [sessionSize]byte) *Stream {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != nil && v.current.session == session && !v.current.hasEnded() {
		return v.current
	}
	if kind != kindBegin || arrival < v.began {
		return nil
	}
	v.began = arrival
	if v.current != nil {
		v.current.end(errReplaced)
	}
	v.current = newStream()
	v.current.session = session
	select {
	case <-v.streams: // nobody has taken that one up
	default:
	}
	v.streams <- v.current
	return v.current
}

func answer(status byte, received uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{status}, received)
}
