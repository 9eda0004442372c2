package engine

import (
	"bytes"
	"context"
	"errors"
	"io"

	"pinfold/sandbox"
)

// inlet is a program's standard input, written from outside piece by piece. A
// piece is taken when the program's side reads it, so nothing gathers here.
type inlet struct {
	r     *io.PipeReader // the program's end
	w     *io.PipeWriter
	place chan struct{} // holds one: for the piece that is being written
	over  chan struct{} // closed by end
}

func newInlet() *inlet {
	i := &inlet{place: make(chan struct{}, 1), over: make(chan struct{})}
	i.r, i.w = io.Pipe()
	return i
}

// write writes all of r and says how much was taken. It blocks while the program
// does not read.
func (i *inlet) write(ctx context.Context, r io.Reader) (int64, error) {
	buf := make([]byte, 32<<10)
	var total int64
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			k, err := i.piece(ctx, buf[:n])
			total += int64(k)
			if err != nil {
				return total, err
			}
		}
		if readErr != nil {
			if errors.Is(readErr, io.EOF) {
				return total, nil
			}
			return total, &sandbox.Error{Code: sandbox.CodeRequestInvalid, Message: "what to write broke off", Err: readErr}
		}
	}
}

// piece writes one piece. When ctx ends before the program has read it, the
// piece stays on its way: the pipe cannot take it back. Pieces that come later
// wait for it, each as long as its own ctx.
func (i *inlet) piece(ctx context.Context, b []byte) (int, error) {
	select {
	case i.place <- struct{}{}:
	case <-i.over:
		return 0, errStdinClosed()
	case <-ctx.Done():
		return 0, cancelledOr(ctx, context.Cause(ctx))
	}
	type written struct {
		n   int
		err error
	}
	result := make(chan written, 1)
	piece := bytes.Clone(b)
	go func() {
		n, err := i.w.Write(piece)
		<-i.place
		result <- written{n, err}
	}()
	select {
	case w := <-result:
		if w.err != nil {
			return w.n, errStdinClosed()
		}
		return w.n, nil
	case <-ctx.Done():
		return 0, cancelledOr(ctx, context.Cause(ctx))
	}
}

// close lets the program read the end of its input. It is idempotent.
func (i *inlet) close() { _ = i.w.Close() } // never fails

// end is called once, when the program has ended: what is being written fails.
func (i *inlet) end() {
	close(i.over)
	_ = i.r.CloseWithError(errStdinClosed()) // never fails
}

func errStdinClosed() *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the program has ended, or its stdin is closed"}
}

// WriteRunStdin writes to the standard input of a run that goes on, which was
// asked for with Request.OpenStdin, and says how much the program's side has
// taken. It blocks while the program does not read.
func (e *Engine) WriteRunStdin(ctx context.Context, tenant, id string, r io.Reader) (int64, error) {
	in, err := e.runInlet(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	return in.write(ctx, r)
}

// CloseRunStdin ends the standard input of such a run. It is idempotent.
func (e *Engine) CloseRunStdin(ctx context.Context, tenant, id string) error {
	in, err := e.runInlet(ctx, tenant, id)
	if err == nil {
		in.close()
	}
	return err
}

func (e *Engine) runInlet(ctx context.Context, tenant, id string) (*inlet, error) {
	if l := e.live(tenant, id); l != nil && l.stdin != nil {
		return l.stdin, nil
	}
	if _, err := e.RunRecord(ctx, tenant, id); err != nil {
		return nil, err
	}
	return nil, errStdinClosed().WithHint("only a run that was started with ?stdin=true has one to write to, until it ends")
}
