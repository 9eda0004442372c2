package runs

import (
	"context"
	"io"

	"pinfold/internal/engine/records"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Watch follows a run. It is for one goroutine, holds up nobody and needs no
// closing: what the program prints up to limits.output_bytes is kept anyway.
type Watch struct {
	run   *liveRun
	at    [2]int64
	state sandbox.RunState // that was told last
	over  bool
}

// Update is what happened next: one of its parts is set.
type Update struct {
	Record *records.Run    // the run has gone to another state
	Stream uint8           // 1 or 2: Chunk was printed there
	Chunk  []byte          // must not be changed
	At     int64           // where Chunk begins
	Result *sandbox.Result // it has ended; nothing follows
}

// WatchRun follows a run of a tenant from offsets of its two streams on. One
// that has ended is told as far as its result has it.
func (rn *Runner) WatchRun(ctx context.Context, tenant, id string, from [2]int64) (*Watch, error) {
	l := rn.live(tenant, id)
	r, err := rn.RunRecord(ctx, tenant, id) // a run that is not recorded yet is nobody's to see
	if err != nil {
		return nil, err
	}
	if l == nil {
		if r.Result == nil {
			return nil, &sandbox.Error{Code: sandbox.CodeConflict, Message: "the result of this run could not be recorded", Hint: "run it again"}
		}
		l = ended(r)
	}
	w := &Watch{run: l, at: from}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, kept := range l.output.Kept() {
		if from[i] > kept && l.result == nil {
			return nil, stdio.OffsetGone(from[i], kept)
		}
	}
	return w, nil
}

// ended makes of a record what a watch needs. Output that the record does not
// have byte for byte is left to the result.
func ended(r records.Run) *liveRun {
	l := &liveRun{record: r, done: make(chan struct{}), news: make(chan struct{}), result: r.Result, output: stdio.Recorded(r.Result)}
	close(l.done)
	return l
}

// Next waits for the next update. After the one with the result the error is
// io.EOF. A run that is refused after all, so that it never has a result, is
// one of code not_found.
func (w *Watch) Next(ctx context.Context) (Update, error) {
	for {
		if w.over {
			return Update{}, io.EOF
		}
		ended := false
		select {
		case <-w.run.done:
			ended = true
		default:
		}
		w.run.mu.Lock()
		news, output, result := w.run.news, w.run.output, w.run.result
		w.run.mu.Unlock()
		if r := w.run.describe(); r.State != w.state && r.State != sandbox.RunFinished {
			w.state = r.State
			return Update{Record: &r}, nil
		}
		stream, chunk, more := output.Next(w.at, ended)
		if len(chunk) > 0 {
			at := &w.at[stream-wire.Stdout]
			u := Update{Stream: stream, Chunk: chunk, At: *at}
			*at += int64(len(chunk))
			return u, nil
		}
		if ended {
			if w.over = true; result == nil {
				return Update{}, records.NotFound("run")
			}
			return Update{Result: result}, nil
		}
		select {
		case <-news:
		case <-more[0]:
		case <-more[1]:
		case <-w.run.done:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
}
