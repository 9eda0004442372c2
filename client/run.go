package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"pinfold/sandbox"
)

// RunOptions say what else to do with a run. The zero value is fine.
type RunOptions struct {
	// Stdin is what the program reads, as it comes and no faster than the
	// program wants it, instead of Spec.Stdin. A read that blocks is not
	// interrupted when the run ends: its goroutine ends with the read. It
	// cannot go with an idempotency key, because it cannot be sent again.
	Stdin io.Reader
	// Stdout and Stderr receive the program's output as it comes: the same
	// bytes that the result keeps. Each is called from the goroutine of Run; an
	// error of theirs ends the run and is returned.
	Stdout io.Writer
	Stderr io.Writer
	// Pending is called where the run waits for a person's approval (ApproveRun), before
	// anything of it runs and from the goroutine of Run. May be nil.
	Pending func(sandbox.Approval)
	// IdempotencyKey, when set, makes the run happen once however often it is
	// asked for: a second call returns the first one's result. With it, Run
	// survives a broken connection, and a caller that goes away does not end
	// the run.
	IdempotencyKey string
	// Artifact receives each declared artifact, in path order, before Run
	// returns. The content is then not in the result.
	Artifact func(a sandbox.Artifact, content io.Reader) error
}

// Run runs one program in a fresh sandbox and returns what became of it.
//
// The error is nil whenever the program was started: its fate is in the
// Result. When ctx ends, the server destroys the sandbox, unless there is an
// idempotency key; Run then returns an error of code disconnected.
func (c *Client) Run(ctx context.Context, spec sandbox.Spec, o RunOptions) (*sandbox.Result, error) {
	if err := checkSendable(spec); err != nil {
		return nil, err
	}
	k := call{method: http.MethodPost, path: []string{"v1", "runs"}, json: spec, limit: maxResultBytes}
	if o.Stdin != nil {
		if o.IdempotencyKey != "" {
			return nil, &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: "stdin", Message: "a stream cannot be sent again, as a run with an idempotency key may have to be",
				Hint: "read it and send it as the request's stdin",
			}
		}
		k.query = values("stdin", "true")
	}
	if o.IdempotencyKey != "" {
		k.header, k.repeat = http.Header{"Idempotency-Key": {o.IdempotencyKey}}, true
	}
	result, err := c.runOnce(ctx, k, o)
	if err != nil {
		return nil, err
	}
	return result, handOver(result, o.Artifact)
}

// runOnce sends the request, and passes the streams on that there are.
func (c *Client) runOnce(ctx context.Context, k call, o RunOptions) (*sandbox.Result, error) {
	if o.Stdin != nil || o.Stdout != nil || o.Stderr != nil || o.Pending != nil {
		return c.runLive(ctx, k, o)
	}
	result, err := again[sandbox.Result](ctx, c, k)
	return &result, err
}

// handOver gives the artifacts' content to f.
func handOver(r *sandbox.Result, f func(sandbox.Artifact, io.Reader) error) error {
	if f == nil {
		return nil
	}
	for i, a := range r.Artifacts {
		content := a.Content
		a.Content, r.Artifacts[i].Content = nil, nil
		if int64(len(content)) != a.Size { // listed only: it was too large to come in line
			r.ArtifactsSkipped = append(r.ArtifactsSkipped, sandbox.SkippedArtifact{
				Path: a.Path, Code: sandbox.CodeTooLarge, Reason: "too large to come with the result",
			})
			continue
		}
		if err := f(a, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return nil
}

// Bounds on coming back after a broken connection, without any progress.
const maxReconnects = 8

// reconnecting calls f again after the connection broke, until it could not come back
// several times in a row. f says whether it got further than the time before.
func reconnecting(ctx context.Context, f func() (further bool, err error)) error {
	for attempt := 0; ; attempt++ {
		further, err := f()
		if further {
			attempt = 0
		}
		if !isBroken(ctx, err) || attempt == maxReconnects || sleep(ctx, backoff(attempt)) != nil {
			return err
		}
	}
}

// again is answered for a request that is sent again after the connection broke, where
// that is safe.
func again[T any](ctx context.Context, c *Client, k call) (out T, err error) {
	if !k.repeat {
		return answered[T](ctx, c, k)
	}
	err = reconnecting(ctx, func() (bool, error) {
		out, err = answered[T](ctx, c, k)
		return false, err
	})
	return out, err
}

// runLive is a run whose output comes as events.
func (c *Client) runLive(ctx context.Context, k call, o RunOptions) (*sandbox.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	live := &liveRun{out: sinks(o.Stdout, o.Stderr), pending: o.Pending}
	if o.Stdin != nil {
		live.started = func(id string) {
			go stdin{c, []string{"v1", "runs", id, "stdin"}}.feed(ctx, o.Stdin, cancel)
		}
	}
	err := c.stream(ctx, k, live)
	if k.repeat && isBroken(ctx, err) {
		// The server goes on. What was missed of the output is in the result.
		result, err := again[sandbox.Result](ctx, c, k)
		if err == nil {
			err = live.rest(&result)
		}
		return &result, err
	}
	if failed := context.Cause(ctx); err != nil && failed != nil {
		err = asDisconnected(c, failed)
	}
	return live.result, err
}

// stream sends the request and hands each event over until f.take says that it
// was the last.
func (c *Client) stream(ctx context.Context, k call, f taker) error {
	s, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer s.close()
	for {
		e, err := s.next()
		if err != nil {
			return err
		}
		last, err := f.take(e)
		if err != nil || last {
			return err
		}
	}
}

type taker interface {
	take(e event) (last bool, err error)
}

// liveRun takes the events of a run.
type liveRun struct {
	out     [2]sink
	result  *sandbox.Result
	started func(id string)        // may be nil
	pending func(sandbox.Approval) // may be nil
}

func (l *liveRun) take(e event) (last bool, err error) {
	switch e.name {
	case "start":
		var start struct {
			ID string `json:"id"`
		}
		if err := e.decode(&start); err != nil || l.started == nil {
			return false, err
		}
		l.started(start.ID)
	case string(sandbox.RunPending):
		var a sandbox.Approval
		if err := e.decode(&a); err != nil || l.pending == nil {
			return false, err
		}
		l.pending(a)
	case "stdout":
		return false, l.out[0].take(e)
	case "stderr":
		return false, l.out[1].take(e)
	case "result":
		l.result = &sandbox.Result{}
		return true, e.decode(l.result)
	}
	return false, nil
}

// rest writes what the result has and the stream did not bring.
func (l *liveRun) rest(r *sandbox.Result) error {
	for i, text := range []string{r.Stdout, r.Stderr} {
		if at := l.out[i].at; at < int64(len(text)) {
			if err := l.out[i].write([]byte(text[at:])); err != nil {
				return err
			}
		}
	}
	return nil
}

// sink is one stream on its way to a writer, which may be nil.
type sink struct {
	w   io.Writer
	at  int64 // offset of the next byte
	cut bool  // whatever was kept did not have the first byte
}

// offsets ask for what is still missing of both streams.
func offsets(out [2]sink) url.Values {
	return values("stdout", strconv.FormatInt(out[0].at, 10), "stderr", strconv.FormatInt(out[1].at, 10))
}

func sinks(stdout, stderr io.Writer) [2]sink { return [2]sink{{w: stdout}, {w: stderr}} }

// chunk is the data of an output event.
type chunk struct {
	Offset *int64  `json:"offset"`
	Text   *string `json:"text"`
	Base64 string  `json:"base64"`
}

func (s *sink) take(e event) error {
	var c chunk
	if err := e.decode(&c); err != nil {
		return err
	}
	return s.add(c)
}

// add writes what of the chunk is new. A gap is an error: the caller asked for
// every byte.
func (s *sink) add(c chunk) error {
	var data []byte
	if c.Text != nil {
		data = []byte(*c.Text)
	} else {
		var err error
		if data, err = base64.StdEncoding.DecodeString(c.Base64); err != nil {
			return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "an output event is not base64", Err: err}
		}
	}
	if c.Offset != nil {
		switch behind := s.at - *c.Offset; {
		case s.at < 0: // whatever is kept
			s.at, s.cut = *c.Offset, *c.Offset > 0
		case behind < 0:
			return offsetGone(*c.Offset)
		default:
			data = data[min(behind, int64(len(data))):]
		}
	}
	return s.write(data)
}

func (s *sink) write(data []byte) error {
	s.at += int64(len(data))
	if s.w == nil || len(data) == 0 {
		return nil
	}
	if _, err := s.w.Write(data); err != nil {
		return passOn("the output", err)
	}
	return nil
}

func offsetGone(first int64) error {
	return &sandbox.Error{
		Code: sandbox.CodeOffsetGone, Message: fmt.Sprintf("the output before byte %d is no longer kept", first),
		Hint: fmt.Sprintf("ask from offset %d, or raise output_bytes of the process", first),
	}
}

// checkSendable refuses what would arrive as something else.
func checkSendable(s sandbox.Spec) error {
	if len(s.Mounts) > 0 {
		return &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "mounts", Message: "a server shows no directories of its host",
			Hint: "send the files in files instead",
		}
	}
	for field, text := range map[string]string{"code": s.Code, "stdin": s.Stdin} {
		if !utf8.ValidString(text) {
			return &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: field, Message: "is not UTF-8 text, and would not arrive as it is",
				Hint: "send the bytes as a file with content_base64",
			}
		}
	}
	return nil
}

// page is one answer of a list.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

func pages[T any](ctx context.Context, c *Client, collection string, f interface{ query() url.Values }) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := f.query()
		for {
			k := get(collection)
			k.query = q
			p, err := answered[page[T]](ctx, c, k)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range p.Items {
				if !yield(item, nil) {
					return
				}
			}
			if p.Next == "" || p.Next == q.Get("cursor") {
				return
			}
			q.Set("cursor", p.Next)
		}
	}
}
