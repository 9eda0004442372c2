package living

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/verdict"
	"pinfold/sandbox"
)

// WriteStdin writes to the process's standard input and says how much it took.
// It blocks while the program does not read.
func (p *Process) WriteStdin(ctx context.Context, r io.Reader) (int64, error) {
	if p.stdin == nil {
		return 0, (&sandbox.Error{Code: sandbox.CodeConflict, Message: "the process was started without a standard input"}).
			WithAdvice(sandbox.Advise("start it with %s", sandbox.Set("stdin", true)))
	}
	done, err := p.sandbox.use()
	if err != nil {
		return 0, err
	}
	defer done()
	n, err := p.stdin.Write(ctx, r)
	if err != nil {
		err = execution.CallerGone(ctx, err)
	}
	return n, err
}

// CloseStdin ends the standard input. It is idempotent.
func (p *Process) CloseStdin() error {
	if p.stdin == nil {
		return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the process was started without a standard input"}
	}
	p.stdin.Close()
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
	return p.sandbox.tell(func() error { return p.guest.Signal(number, true) })
}

// Resize changes the size of the process's terminal.
func (p *Process) Resize(cols, rows int) error {
	t := sandbox.Terminal{Cols: cols, Rows: rows}
	if err := t.Validate(); err != nil {
		return err
	}
	if p.command.Terminal == nil {
		return NoTerminal()
	}
	return p.sandbox.tell(func() error { return p.guest.Resize(cols, rows) })
}

// tell says something to a sandbox that runs.
func (s *Sandbox) tell(f func() error) error {
	done, err := s.use()
	if err != nil {
		return err
	}
	defer done()
	return f()
}

// NoTerminal says to whoever wants a process's terminal that it has none.
func NoTerminal() error {
	return (&sandbox.Error{Code: sandbox.CodeConflict, Message: "the process has no terminal"}).
		WithAdvice(sandbox.Advise("start it with %s", sandbox.Set("terminal", sandbox.Terminal{Cols: 80, Rows: 24})))
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
		if verdict.SignalName(n) == want {
			return syscall.Signal(n), nil
		}
	}
	return 0, &sandbox.Error{
		Code: sandbox.CodeSpecInvalid, Field: "signal", Message: fmt.Sprintf("no signal \"%s\"", sandbox.SafeText(name, 40)),
		Hint: "write SIGTERM, SIGINT, SIGKILL, or a number",
	}
}
