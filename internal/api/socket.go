package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

// wantsSocket refuses a request that asks for no WebSocket where there is nothing else.
func (c *call) wantsSocket(hint string) error {
	if strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return nil
	}
	c.w.Header().Set("Upgrade", "websocket")
	return withStatus(http.StatusUpgradeRequired, "", "this route is a WebSocket", hint)
}

// socket is the WebSocket of a request. Its context ends with the request, or with the
// reason that cancel is given.
type socket struct {
	*websocket.Conn

	ctx    context.Context //nolint:containedctx // both are the connection's
	cancel context.CancelCauseFunc
	// reading is for reads, and lasts until the connection has been served: the library
	// closes a connection as soon as the context of a read ends, before the last words
	// are said.
	reading context.Context //nolint:containedctx // as above
}

// handshake takes what the library answers to a handshake that it refuses.
type handshake struct {
	http.ResponseWriter

	refused int // the status; 0: it is accepted
}

func (h *handshake) WriteHeader(status int) {
	if status != http.StatusSwitchingProtocols {
		h.refused = status
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

func (h *handshake) Write(b []byte) (int, error) { return len(b), nil } // a text of its own form

// Unwrap lets the library take over the connection.
func (h *handshake) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// onSocket makes the request's connection a WebSocket whose frames have at most so many
// bytes, and serves it.
func (c *call) onSocket(frame int64, serve func(s socket)) error {
	h := &handshake{ResponseWriter: c.w}
	// The origin was checked already, against what the operator allows.
	conn, err := websocket.Accept(h, c.r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	switch {
	case err != nil && h.refused >= 400 && h.refused < 500:
		why := cmp.Or(errors.Unwrap(err), err).Error()
		return withStatus(h.refused, "", sandbox.SafeText(why, 200), "connect with a WebSocket client: version 13 (RFC 6455) over HTTP/1.1, with a new Sec-WebSocket-Key")
	case err != nil:
		return err
	}
	conn.SetReadLimit(frame)
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	reading, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	serve(socket{Conn: conn, ctx: ctx, cancel: cancel, reading: reading})
	return nil
}

// cancelWith cancels when a sandbox ends before ctx does.
func cancelWith(ctx context.Context, inside *living.Sandbox, cancel context.CancelCauseFunc) {
	select {
	case <-inside.Ended():
		cancel(&sandbox.Error{Code: sandbox.CodeGone, Message: "the sandbox has ended"})
	case <-ctx.Done():
	}
}

// every calls f again and again, until ctx ends or f returns an error.
func every(ctx context.Context, interval time.Duration, f func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if err := f(); err != nil {
			return err
		}
	}
}
