package warm

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
)

// pipeSize is what a pipe holds at most, as Linux makes them.
const pipeSize = 64 << 10

// forked is a program that was forked into its sandbox. Its output comes
// straight from its pipes; a reader that is slow stops the program.
type forked struct {
	exited, done chan struct{}
	exit         guest.Exit
	err          error // nobody knows how it ended
	held         bool
}

// follow reads a child's output until it has ended.
func follow(c *zygote.Child, stdout, stderr io.Writer) *forked {
	p := &forked{exited: make(chan struct{}), done: make(chan struct{})}
	var pumps sync.WaitGroup
	var held [2]bool
	pumps.Go(func() { held[0] = drain(c.Stdout, stdout) })
	pumps.Go(func() { held[1] = drain(c.Stderr, stderr) })
	go func() {
		if e, ok := <-c.Exited; ok {
			p.exit = guest.Exit{Code: e.Code, Signal: syscall.Signal(e.Signal), CPU: e.CPU}
		} else {
			p.err = zygote.ErrEnded
		}
		close(p.exited)
		until := time.Now().Add(wire.OutputGrace) // as the agent does
		_ = c.Stdout.SetReadDeadline(until)
		_ = c.Stderr.SetReadDeadline(until)
		pumps.Wait()
		p.held = held[0] || held[1]
		for _, file := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
			_ = file.Close()
		}
		close(p.done)
	}()
	return p
}

// pieces are buffers for what comes out of pipes. A program that waits, or
// prints nothing, has none.
var pieces = sync.Pool{New: func() any { b := make([]byte, pipeSize); return &b }}

// drain passes on what comes from a pipe until its end, or until the deadline
// and what is in the pipe then. held says that somebody still has the other end.
func drain(from *os.File, to io.Writer) (held bool) {
	raw, err := from.SyscallConn()
	if err != nil {
		return true
	}
	left := -1 // after the deadline: how much to take of what is in the pipe
	for {
		n, err := drainPiece(raw, to, left)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = from.SetReadDeadline(time.Time{})
			left = pipeSize
		case err != nil:
			return left >= 0 && !errors.Is(err, io.EOF)
		case left >= 0:
			if left -= n; left <= 0 {
				return true
			}
		}
	}
}

// drainPiece waits for something to come and passes it on. With left, it does
// not wait: that nothing is there is an error then.
func drainPiece(raw syscall.RawConn, to io.Writer, left int) (n int, err error) {
	var b *[]byte
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		b = pieces.Get().(*[]byte) //nolint:errcheck,forcetypeassert // ours
		for n, readErr = syscall.Read(int(fd), *b); errors.Is(readErr, syscall.EINTR); {
			n, readErr = syscall.Read(int(fd), *b)
		}
		if errors.Is(readErr, syscall.EAGAIN) && left < 0 {
			pieces.Put(b)
			b = nil
			return false
		}
		return true
	})
	if b == nil {
		return 0, err
	}
	defer pieces.Put(b)
	switch {
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	_, _ = to.Write((*b)[:n])
	return n, nil
}

// Exited implements Program.
func (p *forked) Exited() <-chan struct{} { return p.exited }

// Done implements Program.
func (p *forked) Done() <-chan struct{} { return p.done }

// PipesHeld implements Program.
func (p *forked) PipesHeld() bool { return p.held }

// Wait implements Program.
func (p *forked) Wait(ctx context.Context) (guest.Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return guest.Exit{}, context.Cause(ctx)
	}
}
