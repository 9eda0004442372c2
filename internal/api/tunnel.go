package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

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
		handle: (*call).openTunnel, long: true,
	}}
}

func (c *call) openTunnel() error {
	inside, err := c.sandbox()
	if err != nil {
		return err
	}
	port, err := parsePort(c.r.PathValue("port"))
	if err != nil {
		return err
	}
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		c.w.Header().Set("Upgrade", "websocket")
		return withStatus(http.StatusUpgradeRequired, "", "this route is a WebSocket", "pinfold port-forward SANDBOX PORT speaks it")
	}
	conn, err := c.dialPort(c.r.Context(), port, inside.Dial)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // both directions have ended, or one has failed
	// The origin was checked already, against what the operator allows.
	ws, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return nil // Accept has answered
	}
	ws.SetReadLimit(maxTunnelFrame)
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // whoever copies waits for one of the two ends
	go func() {
		select {
		case <-inside.Ended():
			cancel(&sandbox.Error{Code: sandbox.CodeGone, Message: "the sandbox has ended"})
		case <-ctx.Done():
		}
	}()
	// The library closes a connection as soon as the context of a read ends:
	// before the last words are said.
	reading, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	t := &tunnel{ws: ws, conn: conn, sent: make(chan struct{})}
	in := make(chan error, 1)
	go func() {
		err := t.inward(reading)
		if err != nil {
			cancel(err)
		}
		in <- err
	}()
	go t.ping(ctx, c.o.Heartbeat, c.o.Patience)
	err = t.outward(ctx)
	if err == nil { // what the client still sends goes in
		select {
		case err = <-in:
		case <-t.sent:
		case <-ctx.Done():
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	t.finish(err)
	return nil
}

// tunnel is one connection on its way through.
type tunnel struct {
	ws   *websocket.Conn
	conn net.Conn
	sent chan struct{} // closed when the client has said that nothing more comes
}

// inward copies what the client sends, no faster than the server inside takes
// it. It returns nil when that takes no more.
func (t *tunnel) inward(ctx context.Context) error {
	for {
		kind, frame, err := t.ws.Read(ctx)
		switch {
		case err != nil:
			return errors.Join(context.Canceled, err) // the client is gone
		case kind != websocket.MessageBinary:
			return errBadFrame
		case len(frame) == 0:
			select {
			case <-t.sent:
				return errBadFrame
			default:
			}
			closeWrite(t.conn)
			close(t.sent)
			continue // from now on only pongs come, and the end
		}
		if _, err := t.conn.Write(frame); err != nil {
			return nil //nolint:nilerr // it reads no more; what it says may go on
		}
	}
}

// outward copies what the server inside sends, until it has sent everything.
func (t *tunnel) outward(ctx context.Context) error {
	chunk := make([]byte, tunnelChunk)
	for {
		n, err := t.conn.Read(chunk)
		if n > 0 {
			if err := t.ws.Write(ctx, websocket.MessageBinary, chunk[:n]); err != nil {
				return errors.Join(context.Canceled, err)
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

// ping shows everything between that the connection lives.
func (t *tunnel) ping(ctx context.Context, every, patience time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limit, cancel := context.WithTimeout(ctx, patience)
		_ = t.ws.Ping(limit) // a client that is slow to read answers late
		cancel()
	}
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
