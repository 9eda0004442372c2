package runs

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/stdio"
	"pinfold/sandbox"
)

// liveRun is a run that has no result yet, for those who ask after it. Those
// of its methods that change it do nothing on nil. It is safe for concurrent use.
type liveRun struct {
	record records.Run
	cancel context.CancelCauseFunc
	stdin  *stdio.Inlet  // nil unless it is open
	done   chan struct{} // closed when the result is kept, or there will be none

	mu      sync.Mutex
	news    chan struct{}  // closed and replaced at every change
	pending bool           // it waits for a person
	started time.Time      // zero while it waits for room
	output  *stdio.Capture // nil until the program starts
	result  *sandbox.Result
}

// track enters a run among those that can be looked for. Its context ends when
// somebody cancels it. untrack must be called.
func (rn *Runner) track(ctx context.Context, r records.Run, stdin *stdio.Inlet) (context.Context, *liveRun) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &liveRun{record: r, cancel: cancel, stdin: stdin, done: make(chan struct{}), news: make(chan struct{})}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	rn.runs[r.ID] = l
	return ctx, l
}

// untrack is called when the result is kept, or when there will be none.
func (rn *Runner) untrack(l *liveRun) {
	l.cancel(nil)
	rn.mu.Lock()
	delete(rn.runs, l.record.ID)
	rn.mu.Unlock()
	if l.stdin != nil {
		l.stdin.End()
	}
	close(l.done)
}

// change changes a run and tells everybody who waits for that.
func (l *liveRun) change(f func()) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.news)
	l.news = make(chan struct{})
}

// admitted says that there is room for the run.
func (l *liveRun) admitted() { l.change(func() { l.started = time.Now().UTC().Round(0) }) }

// waits says whether the run waits for a person.
func (l *liveRun) waits(does bool) { l.change(func() { l.pending = does }) }

// opened says where the program's output is kept.
func (l *liveRun) opened(c *stdio.Capture) { l.change(func() { l.output = c }) }

// finish says what became of the run. untrack follows.
func (l *liveRun) finish(r *sandbox.Result) { l.change(func() { l.result = r }) }

// describe returns the record as it stands.
func (l *liveRun) describe() records.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record
	switch {
	case l.result != nil:
		return r.Finished(l.result)
	case l.pending:
		r.State = sandbox.RunPending
	case l.started.IsZero():
		r.State = sandbox.RunQueued
	default:
		r.State, r.StartedAt = sandbox.RunRunning, l.started
	}
	return r
}

// live finds a run of a tenant that has no result yet, or nil.
func (rn *Runner) live(tenant, id string) *liveRun {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if l := rn.runs[id]; l != nil && l.record.Tenant == tenant {
		return l
	}
	return nil
}

// RunRecord finds a run of a tenant, with its result when it has ended.
func (rn *Runner) RunRecord(ctx context.Context, tenant, id string) (records.Run, error) {
	if rn.records == nil {
		return records.Run{}, records.NotFound("run")
	}
	r, err := rn.records.LoadRun(ctx, tenant, id)
	if err == nil {
		r, err = rn.complement(ctx, r)
	}
	if err != nil {
		return r, records.OrNotFound(err, "run")
	}
	return r, nil
}

// complement says of a record where the run stands. The store was asked before:
// a run that is not under way any more has its result there by now, or it waits
// to be recorded.
func (rn *Runner) complement(ctx context.Context, r records.Run) (records.Run, error) {
	if r.Status != "" {
		r.State = sandbox.RunFinished
		return r, nil
	}
	if l := rn.live(r.Tenant, r.ID); l != nil {
		return l.describe(), nil
	}
	again, err := rn.records.LoadRun(ctx, r.Tenant, r.ID)
	if err != nil {
		return r, err
	}
	again.State = sandbox.RunFinished
	if again.Status == "" { // its result was lost on a full disk: the next start records that
		again.State = sandbox.RunRunning
	}
	return again, nil
}

// Runs lists a tenant's runs, without their results. A page of runs in one of
// the states before the last may be shorter than asked for, with more to come.
func (rn *Runner) Runs(ctx context.Context, tenant string, q records.Query) (records.Page[records.Run], error) {
	if rn.records == nil {
		return records.Page[records.Run]{}, nil
	}
	page, err := rn.records.ListRuns(ctx, tenant, q)
	if err != nil {
		return page, sandbox.AsError(err)
	}
	shown := page.Items[:0]
	for _, r := range page.Items {
		r, err := rn.complement(ctx, r)
		switch {
		case err != nil && sandbox.AsError(err).Code == sandbox.CodeNotFound: // removed meanwhile
			continue
		case err != nil:
			return page, sandbox.AsError(err)
		}
		if r.Result = nil; len(q.RunStates) == 0 || slices.Contains(q.RunStates, r.State) {
			shown = append(shown, r)
		}
	}
	page.Items = shown
	return page, nil
}

// CancelRun ends a run of a tenant and waits until it has ended, or ctx has.
// What it has printed so far is in its result. Cancelling one that has ended
// changes nothing.
func (rn *Runner) CancelRun(ctx context.Context, tenant, id string) (records.Run, error) {
	r, err := rn.RunRecord(ctx, tenant, id)
	if err != nil || r.State == sandbox.RunFinished {
		return r, err
	}
	if l := rn.live(tenant, id); l != nil {
		l.cancel(execution.ErrStopped)
	}
	return rn.AwaitRun(ctx, tenant, id)
}

// AwaitRun waits until a run of a tenant has ended, or ctx has: the record says
// which.
func (rn *Runner) AwaitRun(ctx context.Context, tenant, id string) (records.Run, error) {
	if l := rn.live(tenant, id); l != nil {
		select {
		case <-l.done:
		case <-ctx.Done():
		}
	}
	return rn.RunRecord(context.WithoutCancel(ctx), tenant, id)
}

// WriteRunStdin writes to the standard input of a run that goes on, which was
// asked for with Request.OpenStdin, and says how much the program's side has
// taken. It blocks while the program does not read.
func (rn *Runner) WriteRunStdin(ctx context.Context, tenant, id string, r io.Reader) (int64, error) {
	in, err := rn.runInlet(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	n, err := in.Write(ctx, r)
	if err != nil {
		err = execution.CallerGone(ctx, err)
	}
	return n, err
}

// CloseRunStdin ends the standard input of such a run. It is idempotent.
func (rn *Runner) CloseRunStdin(ctx context.Context, tenant, id string) error {
	in, err := rn.runInlet(ctx, tenant, id)
	if err == nil {
		in.Close()
	}
	return err
}

func (rn *Runner) runInlet(ctx context.Context, tenant, id string) (*stdio.Inlet, error) {
	if l := rn.live(tenant, id); l != nil && l.stdin != nil {
		return l.stdin, nil
	}
	if _, err := rn.RunRecord(ctx, tenant, id); err != nil {
		return nil, err
	}
	return nil, stdio.InputClosed()
}
