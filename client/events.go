package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"pinfold/sandbox"
)

// event is one server-sent event, as the HTML standard describes them.
type event struct {
	name string
	data []byte
}

// decode reads the event's data.
func (e event) decode(out any) error {
	if err := json.Unmarshal(e.data, out); err != nil {
		return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "an event of the server is not the JSON that was expected", Err: err}
	}
	return nil
}

// errSilent is why a stream is given up on which nothing comes any more.
var errSilent = errors.New("nothing came from the server for too long")

// eventStream is an open answer with events. It is used by one goroutine.
type eventStream struct {
	client *Client
	ctx    context.Context //nolint:containedctx // ends the answer that this stream reads
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	lines  *bufio.Reader
	alarm  *time.Timer
	limit  int // bytes of one event
}

// open sends the request and returns the stream of its answer. The caller
// closes it.
func (c *Client) open(ctx context.Context, k call) (*eventStream, error) {
	k.accept = typeEvents
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := c.send(ctx, k)
	if err == nil {
		if err = wantType(resp, typeEvents); err != nil {
			_ = resp.Body.Close() // the type is what went wrong
		}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &eventStream{client: c, ctx: ctx, cancel: cancel, body: resp.Body, limit: maxResultBytes}
	s.alarm = time.AfterFunc(c.silence, func() { cancel(errSilent) })
	s.lines = bufio.NewReaderSize(watched{resp.Body, s}, 64<<10)
	return s, nil
}

func (s *eventStream) close() {
	s.alarm.Stop()
	s.cancel(nil)
	_ = s.body.Close() // only read from
}

// watched puts the alarm off whenever something comes.
type watched struct {
	r io.Reader
	s *eventStream
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.s.alarm.Reset(w.s.client.silence)
	}
	return n, err
}

// next returns the next event. An error of code disconnected means that the
// stream ended or broke without saying that it was complete; an event named
// "error" comes as the error that it holds.
func (s *eventStream) next() (event, error) {
	var e event
	size, some := 0, false
	for {
		line, err := s.line(s.limit - size)
		if err != nil {
			return event{}, s.broken(err)
		}
		size += len(line)
		if len(line) == 0 {
			if !some {
				continue // after a comment
			}
			return e, s.failure(e)
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name, some = string(value), true
		case "data":
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data, some = append(e.data, value...), true
		}
	}
}

// line returns a line without its end, of at most limit bytes.
func (s *eventStream) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, &sandbox.Error{Code: sandbox.CodeTooLarge, Message: fmt.Sprintf("an event of the server is larger than %s", sandbox.FormatSize(int64(s.limit)))}
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (s *eventStream) broken(err error) error {
	var e *sandbox.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // the last event says that it is the last
	}
	return disconnected(s.client.base, cause(s.ctx, err))
}

// failure is the error in an event named "error".
func (s *eventStream) failure(e event) error {
	if e.name != "error" {
		return nil
	}
	var body sandbox.ErrorBody
	if json.Unmarshal(e.data, &body) == nil && body.Error != nil {
		return body.Error
	}
	var plain sandbox.Error
	if json.Unmarshal(e.data, &plain) == nil && plain.Code != "" {
		return &plain
	}
	return &sandbox.Error{Code: sandbox.CodeInternal, Message: "the server reported an error without saying which"}
}

// isBroken says whether an error means that the connection was lost while the
// caller still wants it.
func isBroken(ctx context.Context, err error) bool {
	var lost *lostError
	return ctx.Err() == nil && errors.As(err, &lost)
}
