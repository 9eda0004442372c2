package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"pinfold/internal/engine/living"
	"pinfold/internal/engine/stdio"
	"pinfold/sandbox"
)

// streamProcess starts a process and follows it.
func (c *call) streamProcess(s *living.Sandbox, command sandbox.Command) error {
	p, outputs, err := s.StartFollowed(c.r.Context(), command)
	if err != nil {
		return err
	}
	defer outputs.Close()
	e := c.newEvents(c.w)
	defer e.end()
	if err := e.send("start", "", p.Info()); err != nil {
		return err
	}
	return c.follow(e, p, outputs)
}

func (c *call) streamOutput(p *living.Process) error {
	from, err := c.resumeAt()
	if err != nil {
		return err
	}
	outputs := p.Outputs(from)
	defer outputs.Close()
	e := c.newEvents(c.w)
	defer e.end()
	return c.follow(e, p, outputs)
}

// resumeAt is the first byte of each stream that the client wants.
func (c *call) resumeAt() (from [2]int64, err error) {
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		return parseResumeID(last)
	}
	return [2]int64{c.query.int("stdout"), c.query.int("stderr")}, nil
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
func (c *call) follow(e *events, p *living.Process, outputs *stdio.Follower) error {
	at, err := outputs.Begin()
	if err != nil {
		return c.cutOff(e, err)
	}
	if err := e.begin(); err != nil {
		return err
	}
	s := newStreams(e, at)
	for {
		stream, chunk, _, err := outputs.Next(c.r.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.cutOff(e, err)
		}
		if err := s.send(stream, chunk); err != nil {
			return err
		}
	}
	if err := s.end(); err != nil {
		return err
	}
	info, err := p.Wait(c.r.Context())
	if err != nil {
		return c.cutOff(e, err)
	}
	return e.send("exit", "", info)
}

// streams sends pieces of two output streams as events. These end at whole
// characters where they can.
type streams struct {
	e    *events
	cuts [2]splitter
}

func newStreams(e *events, at [2]int64) *streams {
	return &streams{e: e, cuts: [2]splitter{{stream: "stdout", at: at[0]}, {stream: "stderr", at: at[1]}}}
}

// send sends the next bytes of a stream: 1 is stdout, 2 stderr.
func (s *streams) send(stream uint8, chunk []byte) error {
	return s.event(s.cuts[stream-1].take(chunk))
}

// end sends what is left of both.
func (s *streams) end() error {
	for i := range s.cuts {
		if err := s.event(s.cuts[i].rest()); err != nil {
			return err
		}
	}
	return nil
}

// event sends one that names what has gone out, so that a client can go on from it.
func (s *streams) event(event OutputEvent, ok bool) error {
	if !ok {
		return nil
	}
	return s.e.send(event.Stream, resumeID(s.cuts[0].at, s.cuts[1].at), event)
}

// cutOff says why a stream ends too early: as a status where that is still
// possible.
func (c *call) cutOff(e *events, err error) error {
	if !e.started() {
		return err
	}
	_ = e.send("error", "", sandbox.ErrorBody{Error: c.shown(c.r, c.why(err))}) // nobody may be left to tell
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
func ready(o *stdio.Reader) (piece, error) {
	past, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := next(past, o)
	if errors.Is(err, context.Canceled) { // nothing has come yet
		return piece{at: p.at}, nil
	}
	return p, err
}

// next returns what comes next.
func next(ctx context.Context, o *stdio.Reader) (piece, error) {
	chunk, at, err := o.Next(ctx)
	if errors.Is(err, io.EOF) {
		return piece{at: at, end: true}, nil
	}
	return piece{bytes: chunk, at: at}, err
}

// rawOutput answers with one stream as it is.
func (c *call) rawOutput(p *living.Process, stream uint8) error {
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
