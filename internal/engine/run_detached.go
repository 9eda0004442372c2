package engine

import (
	"context"

	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// Start records a run that goes on by itself and returns as soon as that is
// done: whatever happens from then on, the record is there, and in the end it
// has a result. Cancel it with CancelRun. req.Streams and req.Started are not
// for such runs. req.Released is called once what the request holds is not
// needed any more, unless Start returns an error.
//
// With an idempotency key that was used before it returns that earlier run.
func (e *Engine) Start(ctx context.Context, req Request) (records.Run, error) {
	if req.Tenant == "" {
		req.Tenant = records.LocalTenant
	}
	if e.records == nil {
		return records.Run{}, &sandbox.Error{Code: sandbox.CodeConflict, Message: "without a store nobody could ask after the run", Hint: "wait for it"}
	}
	j, err := e.prepare(ctx, req)
	if err != nil {
		return records.Run{}, e.refused(ctx, err)
	}
	r, own, err := e.start(ctx, j)
	if !own {
		close(j.told)
	}
	if err != nil {
		return records.Run{}, e.refused(ctx, err)
	}
	if !own {
		j.released()
	}
	return r, nil
}

// released says that what the request holds is not needed any more.
func (j *job) released() {
	if j.request.Released != nil {
		j.request.Released()
	}
}

// start is Start for a job. own says that it goes on now; otherwise the record
// is that of an earlier one.
func (e *Engine) start(ctx context.Context, j *job) (shown records.Run, own bool, err error) {
	r := newRecord(j)
	release := func() {}
	if r.IdempotencyKey != "" {
		if release = e.claimKey(runKey{r.Tenant, r.IdempotencyKey}); release == nil {
			shown, err = e.underWay(r)
			return shown, false, err
		}
	}
	leave, err := e.gate.Detach(r.Tenant)
	if err != nil {
		release()
		return r, false, err
	}
	if err := e.enter(j, true); err != nil {
		leave()
		release()
		return r, false, err
	}
	runCtx, live := e.track(context.WithoutCancel(ctx), r, j.stdin)
	giveUp := func() {
		j.place.Leave()
		e.running.Done()
		e.untrack(live)
		leave()
		release()
	}
	earlier, err := e.beginRun(ctx, r)
	switch {
	case err != nil:
		giveUp()
		return r, false, err
	case earlier != nil:
		giveUp()
		shown, err = e.sameRequest(ctx, r, *earlier)
		return shown, false, err
	}
	failpoint.Hit("run.detached")
	j.live = live
	shown = live.describe()
	e.background.Go(func() {
		defer release()
		defer leave()
		defer close(j.told)
		_, _ = e.complete(runCtx, j, r) // what became of it is in its record
		e.untrack(live)
		j.released()
	})
	return shown, true, nil
}

// underWay returns the run of this process that has the request's key.
func (e *Engine) underWay(r records.Run) (records.Run, error) {
	e.mu.Lock()
	var found *liveRun
	for _, l := range e.runs {
		if l.record.Tenant == r.Tenant && l.record.IdempotencyKey == r.IdempotencyKey {
			found = l
		}
	}
	e.mu.Unlock()
	if found == nil {
		return r, &sandbox.Error{Code: sandbox.CodeConflict, Message: "a request with this idempotency key is being answered", Hint: "ask again in a moment"}
	}
	if found.record.Digest != r.Digest {
		return r, errKeyUsed()
	}
	return found.describe(), nil
}

// sameRequest returns the run that had the key first, if it was asked for alike.
func (e *Engine) sameRequest(ctx context.Context, r, first records.Run) (records.Run, error) {
	if first.Digest != r.Digest {
		return r, errKeyUsed()
	}
	return e.complement(ctx, first)
}
