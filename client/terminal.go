package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"pinfold/sandbox"
)

// maxFrameBytes bounds what a server may send at once on a terminal.
const maxFrameBytes = 4 << 20

// Terminal is the other end of a process's terminal: what is written is typed,
// what is read was printed. After a broken connection it comes back by itself;
// what was printed meanwhile is read, what was typed may be lost.
//
// Read and Write may be called at the same time, each from one goroutine.
type Terminal struct {
	process *Process
	ctx     context.Context //nolint:containedctx // a terminal is used like a file, which takes none
	cancel  context.CancelFunc

	mu   sync.Mutex
	conn *websocket.Conn

	// These belong to Read.
	frame io.Reader // the rest of a message
	at    int64
	end   *sandbox.Process
	err   error
}

// Terminal connects to the process's terminal, at the given byte of its output:
// 0 for all of it. The process must have been started with Command.Terminal.
// The caller closes it; that does not end the process. When ctx ends the
// connection does.
func (p *Process) Terminal(ctx context.Context, offset int64) (*Terminal, error) {
	if offset < 0 {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "offset", Message: "must not be negative"}
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &Terminal{process: p, ctx: ctx, cancel: cancel, at: offset}
	if err := t.connect(); err != nil {
		cancel()
		return nil, err
	}
	return t, nil
}

func (t *Terminal) connect() error {
	c := t.process.sandbox.client
	k := t.process.call(http.MethodGet, "terminal")
	k.query = values("offset", strconv.FormatInt(t.at, 10))
	conn, err := c.dial(t.ctx, k)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.conn = conn
	t.mu.Unlock()
	return nil
}

// dial connects to a route that is a WebSocket.
func (c *Client) dial(ctx context.Context, k call) (*websocket.Conn, error) {
	u, err := k.url(c.base)
	if err != nil {
		return nil, err
	}
	header := http.Header{"User-Agent": {c.agent}}
	c.authorize(header)
	options := &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header, Host: c.base.Host}
	conn, resp, err := websocket.Dial(ctx, u.String(), options) //nolint:bodyclose // Dial's own business
	if err != nil {
		if resp != nil && resp.StatusCode >= 300 && resp.Body != nil {
			return nil, readError(resp)
		}
		return nil, disconnected(c.base, cause(ctx, err))
	}
	conn.SetReadLimit(maxFrameBytes)
	return conn, nil
}

func (t *Terminal) current() *websocket.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn
}

// Read returns what the process printed, and io.EOF after its end; Process then
// says how it ended.
func (t *Terminal) Read(p []byte) (int, error) {
	for t.err == nil {
		if t.frame == nil {
			t.err = t.nextFrame()
			continue
		}
		n, err := t.frame.Read(p)
		t.at += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			t.frame = nil
		case err != nil:
			t.frame = nil
			t.err = t.back(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, t.err
}

// nextFrame waits for output. io.EOF means that the process has ended.
func (t *Terminal) nextFrame() error {
	for {
		kind, r, err := t.current().Reader(t.ctx)
		switch {
		case err != nil && t.end != nil:
			return io.EOF
		case err != nil:
			if err := t.back(err); err != nil {
				return err
			}
			continue
		case kind == websocket.MessageBinary:
			t.frame = r
			return nil
		}
		if err := t.control(r); err != nil {
			return err
		}
		if t.end != nil {
			return io.EOF
		}
	}
}

// control reads what the server says beside the output.
func (t *Terminal) control(r io.Reader) error {
	var message struct {
		Exit  *sandbox.Process `json:"exit"`
		Error *sandbox.Error   `json:"error"`
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return t.back(err)
	}
	if err := json.Unmarshal(data, &message); err != nil {
		return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "the terminal's server says what is not understood", Err: err}
	}
	if message.Error != nil {
		return message.Error
	}
	t.end = message.Exit
	return nil
}

// back connects again after the connection broke.
func (t *Terminal) back(err error) error {
	c := t.process.sandbox.client
	if t.ctx.Err() != nil {
		return disconnected(c.base, cause(t.ctx, err))
	}
	if status := websocket.CloseStatus(err); status == websocket.StatusPolicyViolation || status == websocket.StatusMessageTooBig {
		return disconnected(c.base, err)
	}
	if sErr := sleep(t.ctx, firstWait); sErr != nil {
		return disconnected(c.base, sErr)
	}
	return reconnecting(t.ctx, func() (bool, error) { return false, t.connect() })
}

// maxTyped is how much goes in one frame; servers refuse larger ones.
const maxTyped = 32 << 10

// Write types p. While the connection is broken it fails.
func (t *Terminal) Write(p []byte) (int, error) {
	n := 0
	for piece := range slices.Chunk(p, maxTyped) {
		if err := t.send(websocket.MessageBinary, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

func (t *Terminal) send(kind websocket.MessageType, p []byte) error {
	if err := t.current().Write(t.ctx, kind, p); err != nil {
		return disconnected(t.process.sandbox.client.base, cause(t.ctx, err))
	}
	return nil
}

// Resize tells the process that the terminal has another size.
func (t *Terminal) Resize(cols, rows int) error {
	message, err := json.Marshal(struct {
		Resize sandbox.Terminal `json:"resize"`
	}{sandbox.Terminal{Cols: cols, Rows: rows}})
	if err != nil {
		return &sandbox.Error{Code: sandbox.CodeInternal, Message: "a size cannot be written as JSON", Err: err}
	}
	return t.send(websocket.MessageText, message)
}

// Process says how the process ended, once Read has returned io.EOF.
func (t *Terminal) Process() (sandbox.Process, bool) {
	if t.end == nil {
		return sandbox.Process{}, false
	}
	return *t.end, true
}

// Close ends the connection. The process goes on.
func (t *Terminal) Close() error {
	_ = t.current().Close(websocket.StatusNormalClosure, "") // the other side may be gone already
	t.cancel()
	return nil
}

var _ io.ReadWriteCloser = (*Terminal)(nil)
