package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"pinfold/sandbox"
)

// Inlet is a program's standard input, written from outside piece by piece. A
// piece is taken when the program's side reads it, so nothing gathers here.
type Inlet struct {
	r     *io.PipeReader // the program's end
	w     *io.PipeWriter
	place chan struct{} // holds one: for the piece that is being written
	over  chan struct{} // closed by End
	ended sync.Once
	used  atomic.Bool
}

// NewInlet returns one that is open.
func NewInlet() *Inlet {
	i := &Inlet{place: make(chan struct{}, 1), over: make(chan struct{})}
	i.r, i.w = io.Pipe()
	return i
}

// Program is the program's end of it.
func (i *Inlet) Program() io.Reader { return i.r }

// Used says that something was written to it.
func (i *Inlet) Used() bool { return i.used.Load() }

// Write writes all of r and says how much was taken. It blocks while the program does
// not read. The error is one of code conflict where the program reads no more, one of
// code request_invalid where r fails, or the context's.
func (i *Inlet) Write(ctx context.Context, r io.Reader) (int64, error) {
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
func (i *Inlet) piece(ctx context.Context, b []byte) (int, error) {
	select {
	case i.place <- struct{}{}:
	case <-i.over:
		return 0, InputClosed()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	type written struct {
		n   int
		err error
	}
	i.used.Store(true)
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
			return w.n, InputClosed()
		}
		return w.n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Close lets the program read the end of its input. It is idempotent.
func (i *Inlet) Close() { _ = i.w.Close() } // never fails

// End says that the program has ended, or reads no more: what is being written fails. It is
// idempotent.
func (i *Inlet) End() {
	i.ended.Do(func() { close(i.over) })
	_ = i.r.CloseWithError(InputClosed()) // never fails
}

// InputClosed is the error of writing to a program that reads no more.
func InputClosed() *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the program has ended, or its stdin is closed"}
}
