package engine

import (
	"context"
	"io"
	"strings"

	"pinfold/sandbox"
)

// RunWatch follows a run. It is for one goroutine, holds up nobody and needs no
// closing: what the program prints up to limits.output_bytes is kept anyway.
type RunWatch struct {
	run   *liveRun
	at    [2]int64
	state sandbox.RunState // that was told last
	over  bool
}

// RunUpdate is what happened next: one of its parts is set.
type RunUpdate struct {
	Record *RunRecord      // the run has gone to another state
	Stream int             // 1 or 2: Chunk was printed there
	Chunk  []byte          // must not be changed
	At     int64           // where Chunk begins
	Result *sandbox.Result // it has ended; nothing follows
}

// WatchRun follows a run of a tenant from offsets of its two streams on. One
// that has ended is told as far as its result has it.
func (e *Engine) WatchRun(ctx context.Context, tenant, id string, from [2]int64) (*RunWatch, error) {
	l := e.live(tenant, id)
	r, err := e.RunRecord(ctx, tenant, id) // a run that is not recorded yet is nobody's to see
	if err != nil {
		return nil, err
	}
	if l == nil {
		if r.Result == nil {
			return nil, &sandbox.Error{Code: sandbox.CodeConflict, Message: "the result of this run could not be recorded", Hint: "run it again"}
		}
		l = ended(r)
	}
	w := &RunWatch{run: l, at: from}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, at := range from {
		var kept int64
		if c := l.output[i]; c != nil {
			kept = c.size()
		}
		if at > kept && l.result == nil {
			return nil, offsetGone(at, kept)
		}
	}
	return w, nil
}

// ended makes of a record what a watch needs. Output that the record does not
// have byte for byte is left to the result.
func ended(r RunRecord) *liveRun {
	l := &liveRun{record: r, done: make(chan struct{}), news: make(chan struct{}), result: r.Result, order: &order{pieces: r.Result.OutputOrder}}
	for i, text := range []string{r.Result.Stdout, r.Result.Stderr} {
		if strings.Contains(text, "\uFFFD") {
			text = ""
		}
		l.output[i] = &capture{limit: int64(len(text)), kept: []byte(text)}
	}
	close(l.done)
	return l
}

// Next waits for the next update. After the one with the result the error is
// io.EOF. A run that is refused after all, so that it never has a result, is
// one of code not_found.
func (w *RunWatch) Next(ctx context.Context) (RunUpdate, error) {
	for {
		if w.over {
			return RunUpdate{}, io.EOF
		}
		ended := false
		select {
		case <-w.run.done:
			ended = true
		default:
		}
		w.run.mu.Lock()
		news, output, order, result := w.run.news, w.run.output, w.run.order, w.run.result
		w.run.mu.Unlock()
		if r := w.run.describe(); r.State != w.state && r.State != sandbox.RunFinished {
			w.state = r.State
			return RunUpdate{Record: &r}, nil
		}
		u, more := w.output(output, order, ended)
		if len(u.Chunk) > 0 {
			return u, nil
		}
		if ended {
			if w.over = true; result == nil {
				return RunUpdate{}, notFound("run")
			}
			return RunUpdate{Result: result}, nil
		}
		select {
		case <-news:
		case <-more[0]:
		case <-more[1]:
		case <-w.run.done:
		case <-ctx.Done():
			return RunUpdate{}, context.Cause(ctx)
		}
	}
}

// output takes what was printed next, or returns what is closed when there is more.
// ended says that nothing comes any more.
func (w *RunWatch) output(captures [2]*capture, order *order, ended bool) (u RunUpdate, more [2]<-chan struct{}) {
	var chunks [2][]byte
	for i, c := range captures {
		if c != nil {
			chunks[i], more[i] = c.from(w.at[i])
		}
	}
	if len(chunks[0])+len(chunks[1]) == 0 {
		return u, more
	}
	// What comes is noted before it comes: see Outputs.Next.
	stream, most := 0, int64(outputChunk)
	if i, n, ok := order.next(w.at); ok {
		if len(chunks[i]) == 0 {
			chunks[i], more[i] = captures[i].from(w.at[i])
		}
		if len(chunks[i]) == 0 && !ended { // it is on its way
			more[1-i] = nil
			return u, more
		}
		stream, most = i, min(n, most)
	}
	if len(chunks[stream]) == 0 {
		stream, most = 1-stream, outputChunk
	}
	chunk := chunks[stream][:min(int64(len(chunks[stream])), most)]
	u = RunUpdate{Stream: stream + 1, Chunk: chunk, At: w.at[stream]}
	w.at[stream] += int64(len(chunk))
	return u, more
}
