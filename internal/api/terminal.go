package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/coder/websocket"

	"pinfold/internal/engine/living"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

const terminalDescription = `A WebSocket. Binary frames are bytes of the terminal, in both directions. A text frame from the client is a control message: {"resize": {"cols": 120, "rows": 40}}. The server sends {"exit": Process} as text at the end, then closes; {"error": …} when it cannot go on.

A client that was cut off connects again with ?offset=, the number of bytes it has had. Closing the WebSocket leaves the process running.`

const maxTerminalFrame = 64 << 10

// control is a text frame from the client.
type control struct {
	Resize *sandbox.Terminal `json:"resize,omitempty"`
}

// exitFrame is the last text frame of a terminal.
type exitFrame struct {
	Exit sandbox.Process `json:"exit"`
}

func (c *call) attachTerminal(p *living.Process) error {
	if !p.Info().Terminal {
		return living.NoTerminal()
	}
	if err := p.Unchecked(); err != nil {
		return err
	}
	if err := c.wantsSocket("connect with a WebSocket client"); err != nil {
		return err
	}
	output := p.Output(1, c.query.int("offset"))
	defer output.Close()
	begin, err := ready(output)
	if err != nil {
		return err
	}
	return c.onSocket(maxTerminalFrame, func(s socket) {
		t := &terminal{server: c.server, conn: s.Conn, process: p, typed: newInlet()}
		go func() { s.cancel(t.read(s.reading)) }()
		go func() { s.cancel(t.pump(s.ctx)) }()
		go func() { s.cancel(t.ping(s.reading)) }()
		t.finish(c.r, t.write(s.ctx, output, begin))
	})
}

// terminal is one client at a process's terminal.
type terminal struct {
	*server

	conn    *websocket.Conn
	process *living.Process
	typed   *inlet
}

var (
	// errBadFrame says that the client did not keep to the protocol.
	errBadFrame = errors.New("bad frame")
	// errNotRead says that the program takes nothing of what the client sends.
	errNotRead = errors.New("the program does not read its input")
)

// read takes what the client sends until it is gone. It is apart from what
// writes to the program, so that a program that does not read keeps nobody
// from resizing the terminal, or from showing that they are there.
func (t *terminal) read(ctx context.Context) error {
	for {
		kind, frame, err := t.conn.Read(ctx)
		if err != nil {
			return clientGone(err)
		}
		if kind == websocket.MessageText {
			if err := t.control(frame); err != nil {
				return errors.Join(errBadFrame, err)
			}
			continue
		}
		if !t.typed.put(ctx, frame, t.o.ClientTimeout) {
			return errors.Join(errNotRead, &sandbox.Error{
				Code: sandbox.CodeConflict, Message: "the program does not read its input, and more does not fit before it",
				Hint: "connect again when it reads; the process goes on",
			})
		}
	}
}

// pump writes to the program what the client has typed, at the program's pace.
func (t *terminal) pump(ctx context.Context) error {
	for {
		typed, err := t.typed.take(ctx)
		if err != nil {
			return err
		}
		if _, err := t.process.WriteStdin(ctx, bytes.NewReader(typed)); err != nil && ctx.Err() == nil {
			if sandbox.AsError(err).Code != sandbox.CodeConflict { // the program has just ended: its exit follows
				return err
			}
		}
	}
}

func (t *terminal) control(frame []byte) error {
	var c control
	if err := strictjson.Decode(frame, &c); err != nil {
		return err
	}
	if c.Resize == nil {
		return nil
	}
	if err := c.Resize.Validate(); err != nil {
		e := sandbox.AsError(err)
		return e.WithField("resize." + e.Field)
	}
	_ = t.process.Resize(c.Resize.Cols, c.Resize.Rows) // it may have ended
	return nil
}

// ping finds out that a client is gone when nothing is sent.
func (t *terminal) ping(ctx context.Context) error {
	return every(ctx, t.o.Heartbeat, func() error {
		stalls := t.typed.stalls.Load()
		timeout, cancel := context.WithTimeout(ctx, t.o.ClientTimeout)
		err := t.conn.Ping(timeout)
		cancel()
		// While there is no room for what was typed nothing is read, pongs
		// neither. That ends by itself, see put.
		if err != nil && (ctx.Err() != nil || !t.typed.stalledSince(stalls)) {
			return clientGone(err)
		}
		return nil
	})
}

// write sends the terminal's output, then how the process ended.
func (t *terminal) write(ctx context.Context, o *stdio.Reader, p piece) (err error) {
	for ; err == nil && !p.end; p, err = next(ctx, o) {
		if len(p.bytes) == 0 {
			continue
		}
		if err := t.send(ctx, websocket.MessageBinary, p.bytes); err != nil {
			return err
		}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	info, err := t.process.Wait(ctx)
	if err != nil {
		return err
	}
	return t.sendJSON(ctx, exitFrame{info})
}

func (t *terminal) send(ctx context.Context, kind websocket.MessageType, b []byte) error {
	timeout, cancel := context.WithTimeout(ctx, t.o.ClientTimeout)
	defer cancel()
	if err := t.conn.Write(timeout, kind, b); err != nil {
		return clientGone(err)
	}
	return nil
}

func (t *terminal) sendJSON(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.send(ctx, websocket.MessageText, b)
}

// finish closes the connection and says why.
func (t *terminal) finish(r *http.Request, err error) {
	code, reason := websocket.StatusNormalClosure, ""
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		_ = t.conn.CloseNow() // the client is gone
		return
	case errors.Is(err, errBadFrame):
		code, reason = websocket.StatusPolicyViolation, "bad control message"
	case errors.Is(err, errNotRead):
		code, reason = websocket.StatusTryAgainLater, errNotRead.Error()
	case refusesKey(err):
		code, reason = websocket.StatusPolicyViolation, "the key is no longer valid"
	default:
		code, reason = websocket.StatusInternalError, "cannot go on"
	}
	if err != nil {
		_ = t.sendJSON(context.WithoutCancel(r.Context()), sandbox.ErrorBody{Error: t.shown(r, err)})
	}
	_ = t.conn.Close(code, reason)
}
