package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"pinfold/sandbox"
)

// PortConn is a TCP connection to a server inside a sandbox. Read and Write may
// be called at the same time, each from one goroutine. It has no deadlines: end
// the context that it was made with, or close it.
type PortConn struct {
	ctx    context.Context //nolint:containedctx // a connection is used like a file, which takes none
	cancel context.CancelFunc
	ws     *websocket.Conn
	port   int

	// These belong to Read.
	frame io.Reader // the rest of a message
	got   bool      // some of it
	err   error
}

// maxTunnelWrite is how much goes in one frame.
const maxTunnelWrite = 32 << 10

// Dial connects to a TCP server that listens on the port inside, at 127.0.0.1
// or else [::1], whatever it speaks. The sandbox is in use until the connection
// is closed; when ctx ends, so does the connection. What answers is a guest.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	ws, err := s.client.dial(ctx, s.call(http.MethodGet, "tunnel", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	p := &PortConn{ws: ws, port: port}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p, nil
}

// Read reads what the server inside sends; io.EOF when it sends no more.
func (p *PortConn) Read(b []byte) (int, error) {
	for p.err == nil {
		if p.frame == nil {
			if _, p.frame, p.err = p.ws.Reader(p.ctx); p.err != nil {
				p.err = ended(p.err)
			}
			p.got = false
			continue
		}
		n, err := p.frame.Read(b)
		p.got = p.got || n > 0
		switch {
		case errors.Is(err, io.EOF):
			p.frame = nil
			if !p.got { // an empty frame is the end
				p.err = io.EOF
			}
		case err != nil:
			p.err = ended(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, p.err
}

// ended says that the connection broke, unless it was closed as it should be.
func ended(err error) error {
	if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
		return io.EOF
	}
	return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "the connection to the port ended", Err: err}
}

// Write sends to the server inside, no faster than it reads.
func (p *PortConn) Write(b []byte) (int, error) {
	sent := 0
	for part := range slices.Chunk(b, maxTunnelWrite) {
		if err := p.ws.Write(p.ctx, websocket.MessageBinary, part); err != nil {
			return sent, ended(err)
		}
		sent += len(part)
	}
	return sent, nil
}

// CloseWrite says that nothing more comes from here. Reading goes on.
func (p *PortConn) CloseWrite() error {
	if err := p.ws.Write(p.ctx, websocket.MessageBinary, nil); err != nil {
		return ended(err)
	}
	return nil
}

// Close ends the connection.
func (p *PortConn) Close() error {
	p.cancel()
	return p.ws.CloseNow()
}

// portAddr is the address of a port inside a sandbox.
type portAddr int

func (portAddr) Network() string  { return "tcp" }
func (a portAddr) String() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(a))) }

// LocalAddr returns nothing of use: the connection begins in a server.
func (p *PortConn) LocalAddr() net.Addr { return portAddr(0) }

// RemoteAddr returns the port inside.
func (p *PortConn) RemoteAddr() net.Addr { return portAddr(p.port) }

// SetDeadline says that there are no deadlines.
func (p *PortConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline says the same.
func (p *PortConn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline says the same.
func (p *PortConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// Link is an address of a port of a sandbox that works without a key.
type Link struct {
	// URL is the address; empty where the server is reached over a unix socket:
	// then Path goes behind the address under which a browser reaches it.
	URL       string    `json:"url,omitempty"`
	Path      string    `json:"path"`
	Port      int       `json:"port"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Link makes an address under which a browser reaches a server inside without a
// key, for that long; 0 means an hour. It ends earlier with the sandbox, and
// with the key of this client.
func (s *Sandbox) Link(ctx context.Context, port int, ttl time.Duration) (Link, error) {
	k := s.call(http.MethodPost, "links")
	k.json = struct {
		Port  int   `json:"port"`
		TTLMS int64 `json:"ttl_ms,omitempty"`
	}{port, ttl.Milliseconds()}
	l, err := answered[Link](ctx, s.client, k)
	if err == nil && l.URL != "" { // as this client reaches it: a proxy in between may have told the server otherwise
		u := *s.client.base
		l.URL = u.Scheme + "://" + u.Host + u.Path + l.Path
	}
	return l, err
}
