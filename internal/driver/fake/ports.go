package fake

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// dial connects the host to one of the scripted servers.
func (c *channel) dial(req *wire.DialRequest) wire.Outcome {
	serve := c.a.m.script.Ports[req.Port]
	if c.a.m.script.Ports == nil && req.Port == 80 {
		serve = HTTP(http.HandlerFunc(answer))
	}
	if serve == nil {
		return failed(sandbox.CodePortClosed, "nothing listens on that port")
	}
	ours, theirs, err := pair()
	if err != nil {
		return failed(sandbox.CodeResourceUnavailable, err.Error())
	}
	defer ours.Close() //nolint:errcheck // both directions have ended
	c.connected(ours)
	c.a.m.agent.Go(func() {
		defer theirs.Close() //nolint:errcheck // the server is done
		serve(theirs)
	})
	c.a.message(wire.KindEvent, c.id, &wire.Event{Kind: wire.EventOpened})
	var in sync.WaitGroup
	in.Go(func() {
		if _, err := io.Copy(ours, c.inbound()); err != nil {
			c.in.Close()
			c.a.frame(wire.AppendEOF(nil, c.id, wire.Stdin))
			return
		}
		_ = ours.CloseWrite() // the server is gone: nobody to tell
	})
	_, _ = io.Copy(c.outbound(wire.Stdout), ours) // ends with either side
	c.a.frame(wire.AppendEOF(nil, c.id, wire.Stdout))
	in.Wait()
	return wire.Outcome{}
}

// connected names the connection whose reading ends when nobody wants it.
func (c *channel) connected(s *net.UnixConn) {
	c.mu.Lock()
	c.socket = s
	c.mu.Unlock()
	select {
	case <-c.gone:
		c.readNoMore()
	default:
	}
}

// readNoMore ends what waits for the server.
func (c *channel) readNoMore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket == nil {
		return
	}
	past := time.Unix(1, 0)
	_ = c.socket.SetReadDeadline(past) // closed already: nothing waits
	select {
	case <-c.gone:
		_ = c.socket.SetWriteDeadline(past)
	default:
	}
}

// pair makes a connection in memory that can be half closed.
func pair() (a, b *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	if a, err = unixConn(fds[0]); err != nil {
		_ = syscall.Close(fds[1])
		return nil, nil, err
	}
	if b, err = unixConn(fds[1]); err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

func unixConn(fd int) (*net.UnixConn, error) {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "fake")
	defer f.Close() //nolint:errcheck // the connection has a copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil //nolint:errcheck,forcetypeassert // it is one
}

// answer is what port 80 says by default.
func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = fmt.Fprintf(w, "%s %s\n", r.Method, r.URL.RequestURI())
	_, _ = io.Copy(w, r.Body)
}

// HTTP makes a server of a handler, for Script.Ports.
func HTTP(h http.Handler) func(net.Conn) {
	return func(conn net.Conn) {
		once := &single{conn: conn, closed: make(chan struct{})}
		server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		_ = server.Serve(once) // ends with the connection
	}
}

// single is a listener with one connection.
type single struct {
	conn   net.Conn
	taken  bool
	closed chan struct{}
	once   sync.Once
}

// Accept returns the connection, and then waits for its end.
func (s *single) Accept() (net.Conn, error) {
	if s.taken {
		<-s.closed
		return nil, net.ErrClosed
	}
	s.taken = true
	return counted{s.conn, s}, nil
}

// Close ends Accept.
func (s *single) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr is the connection's.
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

// counted tells its listener of its end.
type counted struct {
	net.Conn
	s *single
}

// Close closes the connection and the listener.
func (c counted) Close() error {
	err := c.Conn.Close()
	_ = c.s.Close()
	return err
}
