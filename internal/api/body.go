package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// Caps on JSON bodies. Files and archives are streams and have none: the
// sandbox's disk bounds them.
const (
	defaultMaxBody    = 1 << 20
	defaultMaxRunBody = 96 << 20
	bodyBudget        = 512 << 20 // of all JSON bodies that are being read at a time
)

// budget bounds the memory that bodies of all requests take together.
type budget struct{ used atomic.Int64 }

func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= bodyBudget {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// readJSON reads a request's body, at most limit bytes of it, into v. done
// must be called when v is not needed any more.
func (s *server) readJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) (done func(), err error) {
	if err := checkMediaType(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	body, held, err := s.readBody(w, r, limit)
	done = func() { s.bodies.give(held) }
	if err == nil {
		err = strictjson.Decode(body, v)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

func checkMediaType(r *http.Request) error {
	if r.Header.Get("Content-Encoding") != "" {
		return withStatus(http.StatusUnsupportedMediaType, "", "compressed bodies are not accepted", "leave Content-Encoding out")
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return withStatus(http.StatusUnsupportedMediaType, "", "the body must be JSON and say so", "send it with: Content-Type: application/json")
	}
	return nil
}

func bodyTooLarge(limit int64) error {
	return &sandbox.Error{
		Code: sandbox.CodeTooLarge, Message: "the body is larger than " + sandbox.FormatSize(limit),
		Hint: "send large files to a living sandbox: PUT /v1/sandboxes/{id}/files",
	}
}

// readBody reads into memory that grows with what has come, never with what
// was announced, and accounts for it. held is to be given back by the caller.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, held int64, err error) {
	in := s.patient(w, r.Body)
	grow := int64(64 << 10)
	if r.ContentLength > 0 {
		grow = min(grow, r.ContentLength+1)
	}
	for {
		if !s.bodies.take(grow) {
			return nil, held, &sandbox.Error{Code: sandbox.CodeBusy, Message: "too many large requests at once", Hint: "try again in a moment"}
		}
		held += grow
		body = append(make([]byte, 0, held), body...)
		for len(body) < cap(body) {
			n, err := in.Read(body[len(body):cap(body)])
			body = body[:len(body)+n]
			switch {
			case int64(len(body)) > limit:
				return nil, held, bodyTooLarge(limit)
			case errors.Is(err, io.EOF):
				return body, held, nil
			case err != nil:
				return nil, held, readError(err)
			}
		}
		grow = held
	}
}

// readError says what went wrong while a body was read.
func readError(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	return &statusError{http.StatusBadRequest, &sandbox.Error{
		Code: sandbox.CodeRequestInvalid, Message: "the body ended too early", Hint: "send all of it, without long pauses", Err: err,
	}}
}

// patient reads a request's body with a deadline for each piece: a client may
// be slow, but not silent. The deadline is taken back after each read, because
// it would otherwise hit the connection later.
func (s *server) patient(w http.ResponseWriter, body io.Reader) *patientReader {
	return &patientReader{rc: http.NewResponseController(w), body: body, patience: s.o.Patience}
}

type patientReader struct {
	rc       *http.ResponseController
	body     io.Reader
	patience time.Duration
	err      error // why reading failed, if it did: the client's fault, not the sandbox's
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(p.patience)) // not every connection has deadlines
	n, err := p.body.Read(b)
	_ = p.rc.SetReadDeadline(time.Time{})
	if err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	return n, err
}

// outlet writes a stream's answer. It remembers the first failure, and its
// writes have the deadlines of every answer.
type outlet struct {
	rc  *http.ResponseController
	w   io.Writer
	err error
}

func newOutlet(w http.ResponseWriter) *outlet {
	return &outlet{rc: http.NewResponseController(w), w: w}
}

func (o *outlet) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	if err != nil {
		o.err = fmt.Errorf("the client does not read: %w", err)
	}
	return n, o.err
}

// flush sends what is buffered.
func (o *outlet) flush() error {
	if o.err != nil {
		return o.err
	}
	if err := o.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.err = err
	}
	return o.err
}
