package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

const tunnelDescription = `A WebSocket that carries the bytes of one TCP connection to a server inside, which listens on 127.0.0.1 or [::1]; whatever it speaks. Binary frames are bytes, in both directions, as they come; an empty one says that nothing more comes from this side, while the other goes on. The connection ends with the sandbox and with the key.`

const (
	maxTunnelFrame = 256 << 10
	tunnelChunk    = 32 << 10
)

func (s *server) tunnelRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/v1/sandboxes/{id}/tunnel/{port}", id: "openTunnel", tag: "Ports", summary: "Connect to a port inside (WebSocket)",
		description: tunnelDescription, scopes: []string{scopeSandbox},
		answers: []reply{{http.StatusSwitchingProtocols, "", nil, "A WebSocket."}}, errors: []int{http.StatusBadRequest, http.StatusUpgradeRequired, http.StatusBadGateway},
		handle: on((*call).sandbox, (*call).openTunnel), long: true,
	}}
}

func (c *call) openTunnel(inside *living.Sandbox) error {
	port, err := parsePort(c.r.PathValue("port"))
	if err != nil {
		return err
	}
	if err := c.wantsSocket("pinfold port-forward SANDBOX PORT speaks it"); err != nil {
		return err
	}
	conn, err := c.dialPort(c.r.Context(), port, inside.Dial)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // both directions have ended, or one has failed
	return c.onSocket(maxTunnelFrame, func(s socket) {
		defer context.AfterFunc(s.ctx, func() { _ = conn.Close() })() // whoever copies waits for one of the two ends
		go cancelWith(s.ctx, inside, s.cancel)
		t := &tunnel{ws: s.Conn, conn: conn, full: make(chan struct{})}
		go func() { s.cancel(t.inward(s.reading)) }()
		go t.ping(s.ctx, c.o.Heartbeat, c.o.ClientTimeout)
		err := t.outward(s.ctx)
		if err == nil { // what the client still sends goes in
			select {
			case <-t.full:
			case <-s.ctx.Done():
			}
		}
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
		t.finish(err)
	})
}

// tunnel is one connection on its way through.
type tunnel struct {
	ws   *websocket.Conn
	conn net.Conn
	full chan struct{} // closed when nothing more goes in

	// These belong to inward.
	said    bool // by the client: nothing more comes
	refused bool // by the server inside: it takes no more
}

// inward copies what the client sends, no faster than the server inside takes
// it. Nothing goes in any more after the client has said so, or when the server
// takes no more; what comes then is read all the same, for its pongs and its end.
// It returns why it read no more.
func (t *tunnel) inward(ctx context.Context) error {
	chunk := make([]byte, tunnelChunk)
	for {
		kind, frame, err := t.ws.Reader(ctx)
		switch {
		case err != nil:
			return clientGone(err)
		case kind != websocket.MessageBinary:
			return errBadFrame
		}
		n, err := t.put(frame, chunk)
		switch {
		case err != nil:
			return clientGone(err)
		case t.said:
			return errBadFrame
		case n == 0:
			t.said = true
			closeWrite(t.conn)
			if !t.refused {
				close(t.full)
			}
		}
	}
}

// put copies one frame, a chunk at a time: whatever clients send, and do not send on,
// no more of it is gathered.
func (t *tunnel) put(frame io.Reader, chunk []byte) (size int64, err error) {
	for {
		n, err := frame.Read(chunk)
		size += int64(n)
		if n > 0 && !t.said && !t.refused {
			if _, err := t.conn.Write(chunk[:n]); err != nil { // it reads no more; what it says may go on
				t.refused = true
				close(t.full)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

func clientGone(err error) error { return errors.Join(context.Canceled, err) }

// outward copies what the server inside sends, until it has sent everything.
func (t *tunnel) outward(ctx context.Context) error {
	chunk := make([]byte, tunnelChunk)
	for {
		n, err := t.conn.Read(chunk)
		if n > 0 {
			if err := t.ws.Write(ctx, websocket.MessageBinary, chunk[:n]); err != nil {
				return clientGone(err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return t.ws.Write(ctx, websocket.MessageBinary, nil)
		case err != nil:
			return err
		}
	}
}

func closeWrite(conn net.Conn) {
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite() // it may have gone
	}
}

// ping shows everything between that the connection lives; where it has broken, inward
// learns of it. That no answer comes says nothing: a client that does not read, because
// whoever it reads for has paused or has nothing to ask, answers no ping, and its bytes
// may wait for a server inside that takes none.
func (t *tunnel) ping(ctx context.Context, interval, timeout time.Duration) {
	_ = every(ctx, interval, func() error { // ends with ctx
		limit, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_ = t.ws.Ping(limit)
		return nil
	})
}

// finish closes the connection and says why.
func (t *tunnel) finish(err error) {
	code, reason := websocket.StatusNormalClosure, ""
	switch {
	case err == nil:
	case errors.Is(err, errBadFrame):
		code, reason = websocket.StatusPolicyViolation, "only binary frames are for a tunnel"
	case errors.Is(err, context.Canceled):
		_ = t.ws.CloseNow() // the client is gone
		return
	case refusesKey(err):
		code, reason = websocket.StatusPolicyViolation, "the key is no longer valid"
	case sandbox.AsError(err).Code == sandbox.CodeGone:
		code, reason = websocket.StatusGoingAway, "the sandbox has ended"
	default:
		code, reason = websocket.StatusInternalError, "the connection inside broke"
	}
	_ = t.ws.Close(code, reason)
}
