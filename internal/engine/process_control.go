package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"pinfold/sandbox"
)

// WriteStdin writes to the process's standard input and says how much it took.
// It blocks while the program does not read.
func (p *Process) WriteStdin(ctx context.Context, r io.Reader) (int64, error) {
	if p.stdin == nil {
		return 0, &sandbox.Error{Code: sandbox.CodeConflict, Message: "the process was started without a standard input", Hint: `start it with "stdin": true`}
	}
	done, err := p.sandbox.use()
	if err != nil {
		return 0, err
	}
	defer done()
	buf := make([]byte, 32<<10)
	var total int64
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			k, err := p.writeStdin(ctx, buf[:n])
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

// writeStdin writes one piece. When ctx ends before the program has read it, the
// piece stays on its way: the pipe cannot take it back. Pieces that come later
// wait for it, each as long as its own ctx.
func (p *Process) writeStdin(ctx context.Context, b []byte) (int, error) {
	select {
	case p.write <- struct{}{}:
	case <-p.done:
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
		n, err := p.stdin.Write(piece)
		<-p.write
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

// CloseStdin ends the standard input. It is idempotent.
func (p *Process) CloseStdin() error {
	if p.stdin == nil {
		return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the process was started without a standard input"}
	}
	_ = p.stdin.Close() // never fails
	return nil
}

// Signal sends a signal, by name or number, to the process's group. To a process
// that has ended it is an error.
func (p *Process) Signal(name string) error {
	number, err := signalNumber(name)
	if err != nil {
		return err
	}
	if !p.running() {
		return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the process has ended"}
	}
	return p.guest.Signal(number, true)
}

// Resize changes the size of the process's terminal.
func (p *Process) Resize(cols, rows int) error {
	t := sandbox.Terminal{Cols: cols, Rows: rows}
	if err := t.Validate(); err != nil {
		return err
	}
	if p.command.Terminal == nil {
		return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the process has no terminal", Hint: `start it with "terminal": {"cols": 80, "rows": 24}`}
	}
	return p.guest.Resize(cols, rows)
}

// signalNumber reads "SIGTERM", "term" or "15".
func signalNumber(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	want := strings.ToUpper(name)
	if !strings.HasPrefix(want, "SIG") {
		want = "SIG" + want
	}
	for n := 1; n <= 64; n++ {
		if SignalName(n) == want {
			return syscall.Signal(n), nil
		}
	}
	return 0, &sandbox.Error{
		Code: sandbox.CodeSpecInvalid, Field: "signal", Message: fmt.Sprintf("no signal \"%s\"", sandbox.SafeText(name, 40)),
		Hint: "write SIGTERM, SIGINT, SIGKILL, or a number",
	}
}
