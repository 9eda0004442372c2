package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"pinfold/sandbox"
)

// events is a stream of server-sent events. Every event's data is one line of
// JSON, in which a line break is two characters: nothing that a guest prints
// can end an event or begin another. The header goes out with the first event,
// so that what fails before is an ordinary error.
//
// It is safe for concurrent use. A client that stops reading makes send fail
// after the server's timeout; whoever produces must stop then.
type events struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	out     *outlet
	open    bool
	last    time.Time
	stop    chan struct{}
	stopped sync.WaitGroup
}

// newEvents prepares a stream. end must be called.
func (s *server) newEvents(w http.ResponseWriter) *events {
	e := &events{w: w, out: newOutlet(w), stop: make(chan struct{}), last: time.Now()}
	e.stopped.Go(func() { e.beat(s.o.Heartbeat) })
	return e
}

// begin sends the header, once.
func (e *events) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.header()
	return e.out.flush()
}

func (e *events) header() {
	if e.open {
		return
	}
	e.open = true
	h := e.w.Header()
	h.Set("Content-Type", typeEvents)
	h.Set("X-Accel-Buffering", "no") // reverse proxies must not wait for more
	e.w.WriteHeader(http.StatusOK)
}

// started says whether anything was sent: an error can no longer be a status.
func (e *events) started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// send writes one event. The id is where a client that was cut off goes on;
// empty for none.
func (e *events) send(name, id string, data any) error {
	head := "event: " + name + "\ndata: "
	if id != "" {
		head = "id: " + id + "\n" + head
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.header()
	err := encode(e.out, data, func([]byte) error {
		_, err := e.out.Write([]byte(head))
		return err
	})
	if err != nil {
		return err
	}
	return e.write([]byte("\n"))
}

func (e *events) write(b []byte) error {
	if _, err := e.out.Write(b); err != nil {
		return err
	}
	e.last = time.Now()
	return e.out.flush()
}

// beat sends a comment whenever nothing was sent for a while, so that both
// sides and everything between them see that the connection lives.
func (e *events) beat(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		if e.open && time.Since(e.last) >= every-every/8 {
			_ = e.write([]byte(": still here\n\n")) // the next send fails too
		}
		e.mu.Unlock()
	}
}

// endWith sends the reason when ctx ends before the stream does. Every later
// send fails.
func (e *events) endWith(ctx context.Context, reason func() sandbox.ErrorBody) {
	e.stopped.Go(func() {
		select {
		case <-e.stop:
			return
		case <-ctx.Done():
		}
		why := reason()
		if e.started() {
			_ = e.send("error", "", why) // nobody may be left to tell
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.out.err == nil {
			e.out.err = why.Error
		}
	})
}

// end stops the heartbeat. Nothing may be sent afterwards.
func (e *events) end() {
	close(e.stop)
	e.stopped.Wait()
}

// OutputEvent is a piece of output in a stream of events. Offset is where in
// the stream its first byte stands. Bytes that are not UTF-8 come as base64.
type OutputEvent struct {
	Stream string `json:"stream"`
	Offset int64  `json:"offset"`
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
}

// splitter cuts a stream of bytes into events without breaking characters.
type splitter struct {
	stream string
	at     int64
	tail   []byte // the beginning of a character whose end has not come yet
}

// take adds bytes and returns the event to send, if there is any.
func (p *splitter) take(b []byte) (OutputEvent, bool) {
	b = append(p.tail, b...)
	whole := len(b) - incomplete(b)
	p.tail = bytes.Clone(b[whole:])
	return p.event(b[:whole])
}

// rest returns what is left at the end.
func (p *splitter) rest() (OutputEvent, bool) {
	b := p.tail
	p.tail = nil
	return p.event(b)
}

func (p *splitter) event(b []byte) (OutputEvent, bool) {
	e := OutputEvent{Stream: p.stream, Offset: p.at}
	p.at += int64(len(b))
	if utf8.Valid(b) {
		e.Text = string(b)
	} else {
		e.Base64 = base64.StdEncoding.EncodeToString(b)
	}
	return e, len(b) > 0
}

// incomplete is how many bytes at the end begin a character that is cut off.
func incomplete(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// resumeID names the offsets after an event, for Last-Event-ID.
func resumeID(stdout, stderr int64) string {
	return strconv.FormatInt(stdout, 10) + "." + strconv.FormatInt(stderr, 10)
}
