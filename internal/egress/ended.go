package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// endTLS ends TLS with what has come of a ClientHello, which was held against the endpoint,
// and takes the requests in it.
func (c *connection) endTLS(hello []byte) error {
	ended := tls.Server(&begun{Conn: c.guest, come: hello}, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.relay.means.Authority.of(c.door.Host) },
	})
	if err := ended.HandshakeContext(c.relay.life); err != nil { // the deadline is decideTimeout's
		var told *net.OpError
		if errors.As(err, &told) && told.Op == "remote error" {
			c.endpoint.fail(errUntrusted)
		}
		return err
	}
	c.undecided = false
	c.guest, c.scheme = ended, "https"
	if ended.ConnectionState().NegotiatedProtocol == "h2" {
		c.forward(true)
		return c.copyUp(c.guest)
	}
	c.begun = time.Now()
	return c.http(c.soon(c.guest))
}

// begun is a connection of which something was read already.
type begun struct {
	net.Conn
	come []byte
}

// Read implements net.Conn.
func (b *begun) Read(into []byte) (int, error) {
	if len(b.come) > 0 {
		n := copy(into, b.come)
		b.come = b.come[n:]
		return n, nil
	}
	return b.Conn.Read(into)
}

// CloseWrite is net.TCPConn's.
func (b *begun) CloseWrite() error { return closeWrite(b.Conn) }

// forward puts what takes requests, holds each against the rules and says it anew in the
// place of the server. HTTP/1 it gets only as far as it has one reading (connection.http).
func (c *connection) forward(http2 bool) {
	ours, theirs := net.Pipe()
	a := &answered{}
	a.changed.L = &a.mu
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(http2) // TLS, if there is one, has ended
	protocols.SetHTTP1(!http2)
	server := &http.Server{
		Handler: c.relay.forwarder(c.door, c.endpoint, c.scheme), ErrorLog: quiet, Protocols: protocols,
		ReadHeaderTimeout: decideTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: 4 * maxStreamBuffer, MaxReceiveBufferPerStream: maxStreamBuffer,
		},
		BaseContext: func(net.Listener) context.Context { return c.relay.life },
		ConnState:   a.note,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_, _ = ours.Close(), theirs.Close()
		return
	}
	c.server, c.answered = ours, a
	c.touch()
	c.answers.Go(c.copyDown)
	c.answers.Go(func() {
		one := &single{conn: theirs, over: make(chan struct{})}
		_ = server.Serve(one)
	})
}

// Bounds on HTTP/2 of a guest's.
const (
	maxStreams      = 100       // at once on a connection
	maxStreamBuffer = 128 << 10 // bytes of a body on its way; four of these for all of a connection
)

// answered knows how many requests of a connection have been answered.
type answered struct {
	mu      sync.Mutex
	changed sync.Cond
	count   int
	over    bool
}

func (a *answered) note(_ net.Conn, s http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s {
	case http.StateIdle:
		a.count++
	case http.StateClosed, http.StateHijacked:
		a.over = true
	}
	a.changed.Broadcast()
}

// wait waits until so many have been, or no more will.
func (a *answered) wait(count int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.count < count && !a.over {
		a.changed.Wait()
	}
}

// single is a listener with one connection. The next Accept waits for its end.
type single struct {
	conn  net.Conn
	taken bool
	over  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	if !s.taken {
		s.taken = true
		return &singleConn{s.conn, s}, nil
	}
	<-s.over
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (s *single) Close() error { return nil }

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

type singleConn struct {
	net.Conn
	of *single
}

// Close implements net.Conn.
func (c *singleConn) Close() error {
	c.of.once.Do(func() { close(c.of.over) })
	return c.Conn.Close()
}

// open is connect, or forward where requests are held against rules.
func (c *connection) open() error {
	if !c.ruled() {
		return c.connect()
	}
	if c.server == nil {
		c.forward(false)
	}
	if c.server == nil {
		return errOver
	}
	return nil
}

// ruled says whether requests are held against rules.
func (c *connection) ruled() bool {
	return len(c.relay.now.Load().rules(c.endpoint.Host, c.door.Port)) > 0
}
