package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
)

// liveOutput is a program's stdout and stderr on their way to ours. With
// --json there is nothing to pass on.
type liveOutput struct {
	stdout, stderr *stream
	broken         atomic.Bool
}

// liveOutput starts passing output on. cancel ends the run when nobody reads
// stdout any more.
func (a *app) liveOutput(f *runFlags, cancel func()) *liveOutput {
	o := &liveOutput{}
	if f.json {
		return o
	}
	o.stdout = newStream(forReader(a.Stdout, f.raw), func() { o.broken.Store(true); cancel() })
	o.stderr = newStream(forReader(a.Stderr, f.raw), func() {})
	return o
}

// forReader escapes what a terminal would obey, unless raw.
func forReader(f *os.File, raw bool) io.Writer {
	if !raw && isTerminal(f) {
		return &visible{w: f}
	}
	return f
}

func (o *liveOutput) writers() (stdout, stderr io.Writer) {
	if o.stdout == nil {
		return nil, nil
	}
	return o.stdout, o.stderr
}

// finish waits until all output is delivered, or ctx has ended.
func (o *liveOutput) finish(ctx context.Context) {
	if o.stdout != nil {
		o.stdout.finish(ctx)
		o.stderr.finish(ctx)
	}
}

// lost is the error for output that could not be written, as on a full disk, or
// nil. That nobody reads stderr any more loses nothing that anybody wanted.
func (o *liveOutput) lost() error {
	for name, s := range map[string]*stream{"stdout": o.stdout, "stderr": o.stderr} {
		if s == nil {
			continue
		}
		if _, err := s.state(); err != nil && !errors.Is(err, syscall.EPIPE) {
			return lostOutput(name, err)
		}
	}
	return nil
}

// midLine says whether the program left stderr in the middle of a line.
func (o *liveOutput) midLine() bool {
	if o.stderr == nil {
		return false
	}
	mid, _ := o.stderr.state()
	return mid
}

// gone says whether nobody reads our stdout any more.
func (o *liveOutput) gone() bool { return o.broken.Load() }
