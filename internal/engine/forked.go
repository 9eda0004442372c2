package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// running is a program that runs in a machine: started by its agent, or forked
// into it.
type running interface {
	Exited() <-chan struct{}
	Done() <-chan struct{}
	Wait(ctx context.Context) (guest.Exit, error)
	PipesHeld() bool
}

// outputGrace is how long the output of a forked program is read after its end,
// when another process still holds it. The agent does the same.
const outputGrace = 250 * time.Millisecond

// pipeSize is what a pipe holds at most, as Linux makes them.
const pipeSize = 64 << 10

var errParentEnded = &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the parent of forked interpreters ended, and its forks with it"}

// forked is a program that was forked into its machine. Its output comes
// straight from its pipes; a writer that is slow stops the program.
type forked struct {
	f            *driver.Forked
	exited, done chan struct{}
	exit         guest.Exit
	err          error // nobody knows how it ended
	held         bool
}

// follow reads a fork's output until it has ended.
func follow(f *driver.Forked, stdout, stderr io.Writer) *forked {
	p := &forked{f: f, exited: make(chan struct{}), done: make(chan struct{})}
	var pumps sync.WaitGroup
	var held [2]bool
	pumps.Go(func() { held[0] = drain(f.Stdout, stdout) })
	pumps.Go(func() { held[1] = drain(f.Stderr, stderr) })
	go func() {
		if e, ok := <-f.Exited; ok {
			p.exit = guest.Exit{Code: e.Code, Signal: syscall.Signal(e.Signal), CPU: e.CPU}
		} else {
			p.err = errParentEnded
		}
		close(p.exited)
		until := time.Now().Add(outputGrace)
		_ = f.Stdout.SetReadDeadline(until)
		_ = f.Stderr.SetReadDeadline(until)
		pumps.Wait()
		p.held = held[0] || held[1]
		for _, file := range []*os.File{f.Stdin, f.Stdout, f.Stderr} {
			_ = file.Close()
		}
		close(p.done)
	}()
	return p
}

// drain passes on what comes from a pipe until its end, or until the deadline
// and what is in the pipe then. held says that somebody still has the other end.
func drain(from *os.File, to io.Writer) (held bool) {
	b := make([]byte, pipeSize)
	for {
		n, err := from.Read(b)
		if n > 0 {
			_, _ = to.Write(b[:n])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return drainRest(from, to, b)
		case err != nil:
			return false
		}
	}
}

func drainRest(from *os.File, to io.Writer, b []byte) (held bool) {
	_ = from.SetReadDeadline(time.Time{})
	raw, err := from.SyscallConn()
	if err != nil {
		return true
	}
	for left := pipeSize; ; {
		n, readErr := 0, error(nil)
		if err := raw.Read(func(fd uintptr) bool {
			n, readErr = syscall.Read(int(fd), b[:max(left, 1)])
			return true // whatever came: it does not wait
		}); err != nil || n <= 0 {
			return err != nil || readErr != nil
		}
		if left == 0 {
			return true
		}
		_, _ = to.Write(b[:n])
		left -= n
	}
}

// Exited is closed when the program has ended, while its output may still come.
func (p *forked) Exited() <-chan struct{} { return p.exited }

// Done is closed when its output has been passed on, too.
func (p *forked) Done() <-chan struct{} { return p.done }

// PipesHeld is valid after Done.
func (p *forked) PipesHeld() bool { return p.held }

// Wait waits for Done.
func (p *forked) Wait(ctx context.Context) (guest.Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return guest.Exit{}, context.Cause(ctx)
	}
}

// newForkedInterpreter makes an interpreter of a fork that waits for its program.
func newForkedInterpreter(f *driver.Forked) *interpreter {
	i := &interpreter{stdin: f.Stdin, stdout: newRelay(""), stderr: newRelay(""), forked: true}
	i.process = follow(f, i.stdout, i.stderr)
	return i
}
