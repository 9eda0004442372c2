package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"pinfold/client"
	"pinfold/sandbox"
)

// execTerminal runs the command on a terminal that ours shows. Ours is raw
// meanwhile, and put back whatever happens.
func (a *app) execTerminal(ctx context.Context, box *client.Sandbox, f *execFlags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer onSignals(cancel, func() {})() // another must not leave our terminal raw
	p, err := box.Start(ctx, f.command)
	switch {
	case toldToGo(ctx, err):
		return leftRunning(f.id, nil)
	case err != nil:
		return err
	}
	term, err := p.Terminal(ctx, 0)
	switch {
	case toldToGo(ctx, err):
		return leftRunning(f.id, p)
	case err != nil:
		return err
	}
	defer term.Close() //nolint:errcheck // never fails
	if f.stdin {
		restore, err := makeRaw(a.Stdin)
		if err != nil {
			return usageError("-t: the terminal's settings cannot be changed: %s", err)
		}
		defer restore()
		go typeInto(term, a.Stdin)
	}
	defer a.followSize(term)()
	_, err = io.Copy(a.Stdout, term)
	info, ended := term.Process()
	switch {
	case ended:
		a.reportEnding(ctx, box, info, "\r")
		return nil
	case errors.Is(err, syscall.EPIPE):
		return &brokenPipeError{}
	case ctx.Err() != nil:
		return leftRunning(f.id, p)
	case err == nil:
		return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "the server closed the terminal"}
	}
	return err
}

// typeInto sends what is typed. It ends with the program: a read of a terminal
// cannot be interrupted. What is typed while the connection is broken is lost,
// as it would be on a line that is down.
func typeInto(term *client.Terminal, keys io.Reader) {
	buf := make([]byte, 4<<10)
	for {
		n, err := keys.Read(buf)
		if n > 0 {
			_, _ = term.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// followSize tells the command when our window changes.
func (a *app) followSize(term *client.Terminal) (stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ch:
				if cols, rows := windowSize(a.Stdout); cols > 0 && rows > 0 {
					_ = term.Resize(min(cols, sandbox.MaxTerminal), min(rows, sandbox.MaxTerminal)) // the next one may get through
				}
			}
		}
	}()
	return func() { signal.Stop(ch); close(done) }
}
