package cli

import (
	"context"
	"io"
	"os"
	"sync/atomic"
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

// gone says whether nobody reads our stdout any more.
func (o *liveOutput) gone() bool { return o.broken.Load() }
