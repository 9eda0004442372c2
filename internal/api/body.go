package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// Caps on JSON bodies. Files and archives are streams and have none: the
// sandbox's disk bounds them.
const (
	defaultMaxBody    = 1 << 20
	defaultMaxRunBody = 96 << 20
	// minBodyRate is how fast a JSON body must come on the whole, in bytes per
	// second, after the server's timeout: one that drips holds its memory for
	// long.
	minBodyRate = 64 << 10
)

// readJSON reads a request's body, at most limit bytes of it, into v. done
// must be called when v is not needed any more.
func (s *server) readJSON(w http.ResponseWriter, r *http.Request, tenant string, limit int64, v any) (done func(), err error) {
	if err := checkMediaType(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	share := s.bodies.share(tenant)
	in := s.timed(w, r.Body)
	in.rate, in.begun = minBodyRate, time.Now()
	body, err := (&bodyReader{in: in, share: share, limit: limit, dir: s.o.SpoolDir}).read(r.ContentLength)
	if done = share.giveBack; err == nil {
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

// readError says what went wrong while a body was read.
func readError(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	return &statusError{http.StatusBadRequest, &sandbox.Error{
		Code: sandbox.CodeRequestInvalid, Message: "the body ended too early", Hint: "send all of it, without long pauses and not too slowly", Err: err,
	}}
}

// timed reads a request's body with a deadline for each piece: a client may
// be slow, but not silent. The deadline is taken back after each read, because
// it would otherwise hit the connection later.
func (s *server) timed(w http.ResponseWriter, body io.Reader) *timedReader {
	return &timedReader{rc: http.NewResponseController(w), body: body, timeout: s.o.ClientTimeout}
}

type timedReader struct {
	rc      *http.ResponseController
	body    io.Reader
	timeout time.Duration
	rate    int64     // bytes per second that must come after the timeout; 0: any pace will do
	begun   time.Time // when the first read was; needed with a rate
	read    int64
	err     error // why reading failed, if it did: the client's fault, not the sandbox's
}

func (p *timedReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(p.deadline()) // not every connection has deadlines
	n, err := p.body.Read(b)
	_ = p.rc.SetReadDeadline(time.Time{})
	p.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	return n, err
}

// reason is why what was made of the body failed: the reading, or else err.
func (p *timedReader) reason(err error) error {
	if p.err != nil {
		return readError(p.err)
	}
	return err
}

// deadline is when the next piece must have come.
func (p *timedReader) deadline() time.Time {
	silent := time.Now().Add(p.timeout)
	if p.rate == 0 {
		return silent
	}
	slow := p.begun.Add(p.timeout + time.Duration(float64(p.read)/float64(p.rate)*float64(time.Second)))
	if slow.Before(silent) {
		return slow
	}
	return silent
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
