package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// follower sends the two output streams of a process as events. Whoever sends
// holds the lock, so that an event's id names what has really gone out.
type follower struct {
	e *events
	p *engine.Process
	// outputs are readers that are there already; nil: follow opens them.
	outputs [2]*engine.Output

	mu sync.Mutex
	at [2]int64
}

// streamProcess starts a process and follows it.
func (c *call) streamProcess(s *engine.Sandbox, command sandbox.Command) error {
	p, stdout, stderr, err := s.StartAttached(c.r.Context(), command)
	if err != nil {
		return err
	}
	defer stdout.Close()
	defer stderr.Close()
	e := c.newEvents(c.w)
	defer e.end()
	f := &follower{e: e, p: p, outputs: [2]*engine.Output{stdout, stderr}}
	if err := e.send("start", "", p.Info()); err != nil {
		return err
	}
	return c.follow(f)
}

func (c *call) streamOutput() error {
	p, err := c.process()
	if err != nil {
		return err
	}
	from := [2]int64{c.query.int("stdout"), c.query.int("stderr")}
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		if from, err = parseResumeID(last); err != nil {
			return err
		}
	}
	e := c.newEvents(c.w)
	defer e.end()
	return c.follow(&follower{e: e, p: p, at: from})
}

func parseResumeID(id string) (from [2]int64, err error) {
	a, b, ok := strings.Cut(id, ".")
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if !ok || errX != nil || errY != nil || x < 0 || y < 0 {
		return from, badRequest("Last-Event-ID", "is not the id of one of these events", "leave it out to read what is still kept")
	}
	return [2]int64{x, y}, nil
}

// follow sends until both streams have ended, then the end of the process.
func (c *call) follow(f *follower) error {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	var pieces [2]piece
	outputs := f.outputs
	for i := range outputs {
		if outputs[i] == nil {
			outputs[i] = f.p.Output(i+1, f.at[i])
			defer outputs[i].Close()
		}
		var err error
		if pieces[i], err = ready(outputs[i]); err != nil {
			return c.cutOff(f.e, err)
		}
		f.at[i] = pieces[i].at
	}
	if err := f.e.begin(); err != nil {
		return err
	}
	var both sync.WaitGroup
	for i, o := range outputs {
		both.Go(func() {
			defer o.Close() // the process need not wait for this stream any more
			if err := f.copy(ctx, o, i, pieces[i]); err != nil {
				cancel(err)
			}
		})
	}
	both.Wait()
	if err := context.Cause(ctx); err != nil {
		return c.cutOff(f.e, err)
	}
	info, err := f.p.Wait(ctx)
	if err != nil {
		return c.cutOff(f.e, err)
	}
	return f.e.send("exit", "", info)
}

// cutOff says why a stream ends too early: as a status where that is still
// possible.
func (c *call) cutOff(e *events, err error) error {
	if !e.started() {
		return err
	}
	c.errorEvent(c.r, e, c.why(err))
	return nil
}

// piece is a part of an output stream.
type piece struct {
	bytes []byte
	at    int64 // where the first byte stands, or would
	end   bool
}

// ready returns what can be read without waiting. An error says that the
// offset cannot be read from: it comes before anything is answered.
func ready(o *engine.Output) (piece, error) {
	past, cancel := context.WithCancel(context.Background())
	cancel()
	chunk, at, err := o.Next(past)
	switch {
	case errors.Is(err, io.EOF):
		return piece{at: at, end: true}, nil
	case errors.Is(err, context.Canceled): // nothing has come yet
		return piece{at: at}, nil
	}
	return piece{bytes: chunk, at: at}, err
}

// next returns what comes next.
func next(ctx context.Context, o *engine.Output) (piece, error) {
	chunk, at, err := o.Next(ctx)
	if errors.Is(err, io.EOF) {
		return piece{at: at, end: true}, nil
	}
	return piece{bytes: chunk, at: at}, err
}

// copy sends one stream, beginning with a piece that was read already. Events
// end at whole characters where they can.
func (f *follower) copy(ctx context.Context, o *engine.Output, i int, p piece) (err error) {
	cut := splitter{stream: [2]string{"stdout", "stderr"}[i], at: p.at}
	for ; err == nil; p, err = next(ctx, o) {
		event, ok := cut.take(p.bytes)
		if p.end {
			event, ok = cut.rest()
		}
		if ok {
			if err := f.send(i, event, cut.at); err != nil {
				return err
			}
		}
		if p.end {
			return nil
		}
	}
	return err
}

func (f *follower) send(i int, event OutputEvent, next int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[i] = next
	return f.e.send(event.Stream, resumeID(f.at[0], f.at[1]), event)
}

// rawOutput answers with one stream as it is.
func (c *call) rawOutput(stream int) error {
	p, err := c.process()
	if err != nil {
		return err
	}
	o := p.Output(stream, c.query.int("offset"))
	defer o.Close()
	piece, err := ready(o)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", typeBytes)
	h.Set("X-Output-Offset", strconv.FormatInt(piece.at, 10))
	h.Set("X-Accel-Buffering", "no") // reverse proxies must not wait for more
	c.w.WriteHeader(http.StatusOK)
	out := newOutlet(c.w)
	for ; err == nil && !piece.end; piece, err = next(c.r.Context(), o) {
		if _, err := out.Write(piece.bytes); err != nil {
			return err
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
	return err
}
