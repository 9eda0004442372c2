package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"pinfold/sandbox"
)

// stdin is where the standard input of a program is written to: a process's, or
// a run's.
type stdin struct {
	client *Client
	path   []string
}

// stdinBytes is how much input goes in one request. Each request waits until
// the program has taken its bytes, so no more than this is ever under way.
const stdinBytes = 256 << 10

// write sends all of r, as it comes, and returns how many bytes the program's
// side has taken.
func (s stdin) write(ctx context.Context, r io.Reader) (int64, error) {
	var sent int64
	buf := make([]byte, stdinBytes)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			k := call{method: http.MethodPost, path: s.path, stream: bytes.NewReader(buf[:n]), size: int64(n)}
			if err := s.client.ask(ctx, k, nil); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return sent, nil
		case err != nil:
			return sent, &sandbox.Error{Code: sandbox.CodeInternal, Message: "the input cannot be read: " + err.Error(), Err: err}
		}
	}
}

// close lets the program read the end of its input.
func (s stdin) close(ctx context.Context) error {
	return s.client.ask(ctx, call{method: http.MethodDelete, path: s.path, repeat: true}, nil)
}

// feed sends all of r, and then the end. A program that does not want it, or has
// ended, is no error; any other cancels.
func (s stdin) feed(ctx context.Context, r io.Reader, cancel context.CancelCauseFunc) {
	_, err := s.write(ctx, r)
	if err == nil {
		err = s.close(ctx)
	}
	var e *sandbox.Error
	if err == nil || ctx.Err() != nil || errors.As(err, &e) && (e.Code == sandbox.CodeConflict || e.Code == sandbox.CodeGone || e.Code == sandbox.CodeNotFound) {
		return
	}
	cancel(err)
}
