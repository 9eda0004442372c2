package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"pinfold/sandbox"
)

// liveOutput is a program's stdout and stderr on their way to ours. With
// --json there is nothing to pass on.
type liveOutput struct {
	stdout, stderr *stream
	broken         atomic.Bool
	shared         bool        // both go to the same place
	outLast        atomic.Bool // stdout was written to last
}

// liveOutput starts passing output on. cancel ends the run when nobody reads
// stdout any more.
func (a *app) liveOutput(f *runFlags, cancel func()) *liveOutput {
	o := &liveOutput{shared: samePlace(a.Stdout, a.Stderr)}
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
	return noticed{o.stdout, true, &o.outLast}, noticed{o.stderr, false, &o.outLast}
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

// midLine says whether the program left stderr in the middle of a line. Where stdout goes
// to the same place, its last byte counts if it came last.
func (o *liveOutput) midLine() bool {
	if o.stderr == nil {
		return false
	}
	last := o.stderr
	if o.shared && o.outLast.Load() {
		last = o.stdout
	}
	mid, _ := last.state()
	return mid
}

// noticed notes which stream was written to last.
type noticed struct {
	*stream

	isOut bool
	last  *atomic.Bool
}

// Write implements io.Writer.
func (n noticed) Write(p []byte) (int, error) {
	if len(p) > 0 {
		n.last.Store(n.isOut)
	}
	return n.stream.Write(p)
}

// samePlace says whether two descriptors lead to the same terminal, pipe or file.
func samePlace(a, b *os.File) bool {
	one, err := a.Stat()
	if err != nil {
		return false
	}
	other, err := b.Stat()
	return err == nil && os.SameFile(one, other)
}

// endsMidLine is midLine of a result that was printed.
func (a *app) endsMidLine(r *sandbox.Result) bool {
	said := r.Stderr
	if samePlace(a.Stdout, a.Stderr) {
		if n := len(r.OutputOrder); said == "" || n > 0 && r.OutputOrder[n-1].Stream == "stdout" {
			said = r.Stdout
		}
	}
	return said != "" && !strings.HasSuffix(said, "\n")
}

// gone says whether nobody reads our stdout any more.
func (o *liveOutput) gone() bool { return o.broken.Load() }
