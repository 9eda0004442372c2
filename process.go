package pinfold

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"

	"pinfold/internal/engine/living"
	"pinfold/internal/engine/stdio"
	"pinfold/sandbox"
)

// Start starts a process and returns at once.
func (s *Sandbox) Start(ctx context.Context, c sandbox.Command) (*Process, error) {
	p, err := s.box.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// Process returns the process of that id.
func (s *Sandbox) Process(id string) (*Process, error) {
	p, err := s.box.Process(id)
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// Processes returns the processes that run, and the last that have ended.
func (s *Sandbox) Processes(context.Context) ([]sandbox.Process, error) {
	return s.box.Processes(), nil
}

// Exec runs a command and waits for its end. What became of it is in the
// returned Process; the error is nil whenever it was started and its end is
// known. When ctx ends the process goes on.
func (s *Sandbox) Exec(ctx context.Context, c sandbox.Command, o ExecOptions) (sandbox.Process, error) {
	if o.Stdin == nil && o.Stdout == nil && o.Stderr == nil && o.Started == nil {
		return s.box.Exec(ctx, c)
	}
	c.Stdin = c.Stdin || o.Stdin != nil
	p, stdout, stderr, err := s.box.StartAttached(ctx, c)
	if err != nil {
		return sandbox.Process{}, err
	}
	if o.Started != nil {
		o.Started(p.ID())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.Stdin != nil {
		go feed(ctx, p, o.Stdin, cancel)
	}
	from, all := [2]*stdio.Reader{stdout, stderr}, [2]int64{math.MaxInt64, math.MaxInt64}
	if err := follow(ctx, cancel, from, [2]io.Writer{o.Stdout, o.Stderr}, all); err != nil {
		return p.Info(), err
	}
	return p.Wait(ctx)
}

// feed sends all of r to the process. A process that does not want it, or has
// ended, is no error.
func feed(ctx context.Context, p *living.Process, r io.Reader, cancel context.CancelCauseFunc) {
	_, err := p.WriteStdin(ctx, r)
	if err == nil {
		err = p.CloseStdin()
	}
	var e *sandbox.Error
	if err == nil || errors.As(err, &e) && (e.Code == sandbox.CodeConflict || e.Code == sandbox.CodeGone) {
		return
	}
	cancel(err)
}

// follow copies both streams to their writers until their ends, or until a byte
// of each.
func follow(ctx context.Context, cancel context.CancelCauseFunc, from [2]*stdio.Reader, to [2]io.Writer, until [2]int64) error {
	var both sync.WaitGroup
	for i, o := range from {
		both.Go(func() {
			defer o.Close()
			if err := copyOutput(ctx, o, to[i], until[i]); err != nil {
				cancel(err)
			}
		})
	}
	both.Wait()
	if err := context.Cause(ctx); err != nil {
		return sandbox.AsError(err)
	}
	return nil
}

func copyOutput(ctx context.Context, o *stdio.Reader, w io.Writer, until int64) error {
	for at := int64(0); at < until; {
		chunk, first, err := o.Next(ctx)
		at = first + int64(len(chunk))
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case w == nil:
			continue
		}
		if _, err := w.Write(chunk); err != nil {
			return &sandbox.Error{Code: sandbox.CodeInternal, Message: "the output cannot be passed on: " + err.Error(), Err: err}
		}
	}
	return nil
}

// Process is a process in a sandbox of this process.
type Process struct{ process *living.Process }

// ID returns the process's id.
func (p *Process) ID() string { return p.process.ID() }

// Info describes the process; after its end with what is kept of its output.
func (p *Process) Info(context.Context) (sandbox.Process, error) {
	return p.process.InfoWithOutput(), nil
}

// Wait waits for the process's end.
func (p *Process) Wait(ctx context.Context) (sandbox.Process, error) {
	if info, err := p.process.Wait(ctx); err != nil {
		return info, err
	}
	return p.process.InfoWithOutput(), nil
}

// Output copies the process's output from the given offsets until its end, and
// returns how it ended. Where an offset is -1 and the beginning is no longer
// kept, StdoutTruncated or StderrTruncated of the returned Process is set; other
// bytes that are no longer kept are an error of code offset_gone. While somebody
// follows the output the process waits for them, so writers should not block for
// long.
func (p *Process) Output(ctx context.Context, o OutputOptions) (info sandbox.Process, err error) {
	until := [2]int64{math.MaxInt64, math.MaxInt64}
	if o.Now {
		info := p.process.Info()
		until = [2]int64{info.StdoutBytes, info.StderrBytes}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from := [2]*stdio.Reader{p.process.Output(1, o.StdoutOffset), p.process.Output(2, o.StderrOffset)}
	cut := [2]bool{o.StdoutOffset < 0 && from[0].Offset() > 0, o.StderrOffset < 0 && from[1].Offset() > 0}
	if err = follow(ctx, cancel, from, [2]io.Writer{o.Stdout, o.Stderr}, until); err != nil || o.Now {
		info = p.process.Info()
	} else {
		info, err = p.process.Wait(ctx)
	}
	info.StdoutTruncated, info.StderrTruncated = cut[0], cut[1]
	return info, err
}

// WriteStdin sends all of r to the process's standard input and returns how
// many bytes went in. The process must have been started with Command.Stdin or
// a terminal.
func (p *Process) WriteStdin(ctx context.Context, r io.Reader) (int64, error) {
	return p.process.WriteStdin(ctx, r)
}

// CloseStdin lets the process read the end of its input.
func (p *Process) CloseStdin(context.Context) error { return p.process.CloseStdin() }

// Signal sends a signal to the process and its process group: "SIGTERM",
// "TERM" or "15".
func (p *Process) Signal(_ context.Context, name string) error { return p.process.Signal(name) }

// Resize tells a process with a terminal that it has another size.
func (p *Process) Resize(_ context.Context, cols, rows int) error {
	if err := (sandbox.Terminal{Cols: cols, Rows: rows}).Validate(); err != nil {
		return err
	}
	return p.process.Resize(cols, rows)
}
