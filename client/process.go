package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"pinfold/sandbox"
)

// Process is a handle on a process in a sandbox. The process does not end when
// the handle, or the client, goes away.
type Process struct {
	sandbox *Sandbox
	id      string
}

// Start starts a process and returns at once.
func (s *Sandbox) Start(ctx context.Context, c sandbox.Command) (*Process, error) {
	k := s.call(http.MethodPost, "processes")
	k.json = c
	info, err := answered[sandbox.Process](ctx, s.client, k)
	if err != nil {
		return nil, err
	}
	return s.Process(info.ID), nil
}

// Process returns a handle on the process of that id. The server is not asked
// whether there is one; Info does.
func (s *Sandbox) Process(id string) *Process { return &Process{s, id} }

// Processes returns the processes that were started through the server, those
// that have ended too.
func (s *Sandbox) Processes(ctx context.Context) ([]sandbox.Process, error) {
	k := s.call(http.MethodGet, "processes")
	k.limit = maxResultBytes
	return listed[sandbox.Process](ctx, s.client, k)
}

// ExecOptions say where the streams of a command come from and go to.
type ExecOptions struct {
	// Stdin is read until its end and sent to the process. A read that blocks
	// is not interrupted when the process ends: its goroutine ends with the
	// read.
	Stdin io.Reader
	// Stdout and Stderr receive the output as it comes, every byte once, also
	// over connections that break. Where both are nil the output comes in the
	// returned Process instead, cut at limits.output_bytes.
	Stdout io.Writer
	Stderr io.Writer
	// Started, when set, is told the process's id as soon as there is one.
	Started func(id string)
}

// Exec runs a command and waits for its end. What became of it is in the
// returned Process; the error is nil whenever it was started and its end is
// known. When ctx ends the process goes on.
func (s *Sandbox) Exec(ctx context.Context, c sandbox.Command, o ExecOptions) (sandbox.Process, error) {
	k := s.call(http.MethodPost, "processes")
	c.Stdin = c.Stdin || o.Stdin != nil
	k.json, k.limit = c, maxResultBytes
	if o.Stdin == nil && o.Stdout == nil && o.Stderr == nil && o.Started == nil {
		k.query = values("wait", "true")
		return answered[sandbox.Process](ctx, s.client, k)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	live := &liveProcess{out: sinks(o.Stdout, o.Stderr)}
	live.started = func(id string) {
		if o.Started != nil {
			o.Started(id)
		}
		if o.Stdin != nil {
			go s.Process(id).stdin().feed(ctx, o.Stdin, cancel)
		}
	}
	err := s.client.stream(ctx, k, live)
	if live.info.ID != "" && isBroken(ctx, err) {
		err = s.Process(live.info.ID).follow(ctx, live)
	}
	if failed := context.Cause(ctx); err != nil && failed != nil {
		err = asDisconnected(s.client, failed)
	}
	return live.info, err
}

func asDisconnected(c *Client, err error) error {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e
	}
	return disconnected(c.base, err)
}

// ID returns the process's id.
func (p *Process) ID() string { return p.id }

func (p *Process) call(method string, path ...string) call {
	return p.sandbox.call(method, append([]string{"processes", p.id}, path...)...)
}

// Info describes the process, also after its end.
func (p *Process) Info(ctx context.Context) (sandbox.Process, error) {
	k := p.call(http.MethodGet)
	k.limit = maxResultBytes
	return answered[sandbox.Process](ctx, p.sandbox.client, k)
}

// waitMS is how long one request waits for a process: less than what proxies
// on the way commonly allow.
const waitMS = 50_000

// Wait waits for the process's end. It survives broken connections.
func (p *Process) Wait(ctx context.Context) (sandbox.Process, error) {
	k := p.call(http.MethodGet, "wait")
	k.limit, k.query = maxResultBytes, values("timeout_ms", strconv.Itoa(waitMS))
	for {
		info, err := again[sandbox.Process](ctx, p.sandbox.client, k)
		if err != nil || !info.Running {
			return info, err
		}
	}
}

// OutputOptions say which output is wanted, and where it goes.
type OutputOptions struct {
	Stdout io.Writer // may be nil
	Stderr io.Writer // may be nil
	// StdoutOffset and StderrOffset are where to begin: a byte's number, or -1
	// for the first that is still kept.
	StdoutOffset int64
	StderrOffset int64
	// Now ends with what the process has printed by now instead of with the
	// process.
	Now bool
}

// Output copies the process's output from the given offsets until its end, and
// returns how it ended. After a broken connection it comes back by itself and
// goes on at the byte where it was. Where an offset is -1 and the beginning is
// no longer kept, StdoutTruncated or StderrTruncated of the returned Process is
// set; other bytes that are no longer kept are an error of code offset_gone. While somebody follows the output the process waits for
// them, so writers should not block for long.
func (p *Process) Output(ctx context.Context, o OutputOptions) (sandbox.Process, error) {
	live := &liveProcess{out: sinks(o.Stdout, o.Stderr)}
	live.out[0].at, live.out[1].at = o.StdoutOffset, o.StderrOffset
	if o.Now {
		info, err := p.Info(ctx)
		if err != nil {
			return info, err
		}
		info = withoutOutput(info)
		live.info, live.until = info, &[2]int64{info.StdoutBytes, info.StderrBytes}
		if live.enough() {
			return info, nil
		}
	}
	err := p.follow(ctx, live)
	live.info.StdoutTruncated, live.info.StderrTruncated = live.out[0].cut, live.out[1].cut
	// Of one that goes on, more may have come than it had written when it was asked.
	live.info.StdoutBytes, live.info.StderrBytes = max(live.info.StdoutBytes, live.out[0].at), max(live.info.StderrBytes, live.out[1].at)
	return live.info, err
}

// withoutOutput is for who gets the output otherwise.
func withoutOutput(p sandbox.Process) sandbox.Process {
	p.HasOutput, p.ExactOutput = false, sandbox.ExactOutput{}
	p.Stdout, p.Stderr, p.StdoutTruncated, p.StderrTruncated = "", "", false, false
	return p
}

// follow reads output events until the process's end. It gives up when it
// could not come back several times in a row.
func (p *Process) follow(ctx context.Context, live *liveProcess) error {
	return reconnecting(ctx, func() (bool, error) {
		before := live.events
		k := p.call(http.MethodGet, "output")
		k.query = offsets(live.out)
		err := p.sandbox.client.stream(ctx, k, live)
		return live.events > before, err
	})
}

// liveProcess takes the events of a process.
type liveProcess struct {
	out     [2]sink
	info    sandbox.Process
	events  int
	started func(id string)
	until   *[2]int64 // nil: the process's end
}

// enough says that everything is there that was asked for.
func (l *liveProcess) enough() bool {
	if l.until == nil {
		return false
	}
	for i, end := range l.until {
		if l.out[i].at < end && end > 0 {
			return false
		}
	}
	return true
}

func (l *liveProcess) take(e event) (last bool, err error) {
	l.events++
	switch e.name {
	case "start":
		if err := e.decode(&l.info); err != nil || l.started == nil {
			return false, err
		}
		l.started(l.info.ID)
	case "stdout":
		err := l.out[0].take(e)
		return l.enough(), err
	case "stderr":
		err := l.out[1].take(e)
		return l.enough(), err
	case "exit":
		return true, e.decode(&l.info)
	}
	return false, nil
}

func (p *Process) stdin() stdin { return stdin{p.sandbox.client, p.call("", "stdin").path} }

// WriteStdin sends all of r to the process's standard input, as it comes, and
// returns how many bytes the process's side has taken. The process must have
// been started with Command.Stdin or a terminal.
func (p *Process) WriteStdin(ctx context.Context, r io.Reader) (int64, error) {
	return p.stdin().write(ctx, r)
}

// CloseStdin lets the process read the end of its input. That it is closed
// already is no error.
func (p *Process) CloseStdin(ctx context.Context) error { return p.stdin().close(ctx) }

// Signal sends a signal to the process and its process group: "SIGTERM",
// "TERM" or "15".
func (p *Process) Signal(ctx context.Context, name string) error {
	k := p.call(http.MethodPost, "signal")
	k.json = struct {
		Signal string `json:"signal"`
	}{name}
	return p.sandbox.client.ask(ctx, k, nil)
}

// Resize tells a process with a terminal that it has another size.
func (p *Process) Resize(ctx context.Context, cols, rows int) error {
	k := p.call(http.MethodPost, "resize")
	k.repeat, k.json = true, sandbox.Terminal{Cols: cols, Rows: rows}
	return p.sandbox.client.ask(ctx, k, nil)
}
