package runs

import (
	"cmp"
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
func (rn *Runner) Start(ctx context.Context, req Request) (records.Run, error) {
	req.Tenant = cmp.Or(req.Tenant, records.LocalTenant)
	if rn.records == nil {
		return records.Run{}, &sandbox.Error{Code: sandbox.CodeConflict, Message: "without a store nobody could ask after the run", Hint: "wait for it"}
	}
	j, err := rn.prepare(ctx, req)
	if err != nil {
		return records.Run{}, rn.refused(ctx, err)
	}
	r, own, err := rn.start(ctx, j)
	if !own {
		close(j.told)
	}
	if err != nil {
		return records.Run{}, rn.refused(ctx, err)
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
func (rn *Runner) start(ctx context.Context, j *job) (shown records.Run, own bool, err error) {
	r := newRecord(ctx, j)
	release := func() {}
	if r.IdempotencyKey != "" {
		if release = rn.claimKey(runKey{r.Tenant, r.IdempotencyKey}); release == nil {
			shown, err = rn.underWay(r)
			return shown, false, err
		}
	}
	leave, err := rn.gate.Detach(r.Tenant)
	if err != nil {
		release()
		return r, false, err
	}
	if err := rn.count(); err != nil {
		leave()
		release()
		return r, false, err
	}
	j.late, j.counted = true, true
	if err := rn.enter(j); err != nil {
		rn.running.Done()
		leave()
		release()
		return r, false, err
	}
	mayAsk := j.rules.MayAsk(r.Facts)
	if mayAsk || j.spec.Scan || j.packages != nil || j.rules.Looks(r.Facts) { // what comes first may need that very room
		j.place.Leave()
		j.place = nil
	}
	runCtx, live := rn.track(context.WithoutCancel(ctx), r, j.stdin)
	giveUp := func() {
		if j.place != nil {
			j.place.Leave()
		}
		rn.running.Done()
		rn.untrack(live)
		leave()
		release()
	}
	earlier, err := rn.beginRun(ctx, r)
	switch {
	case err != nil:
		giveUp()
		return r, false, err
	case earlier != nil:
		giveUp()
		shown, err = rn.sameRequest(ctx, r, *earlier)
		return shown, false, err
	}
	failpoint.Hit("run.detached")
	j.live = live
	rn.background.Go(func() {
		defer release()
		defer leave()
		defer close(j.told)
		_, _ = rn.complete(runCtx, j, r) // what became of it is in its record
		rn.untrack(live)
		j.released()
	})
	if mayAsk { // whether it waits for a person is a part of the answer
		select {
		case <-j.standing:
		case <-ctx.Done():
		}
	}
	return live.describe(), true, nil
}

// underWay returns the run of this process that has the request's key.
func (rn *Runner) underWay(r records.Run) (records.Run, error) {
	rn.mu.Lock()
	var found *liveRun
	for _, l := range rn.runs {
		if l.record.Tenant == r.Tenant && l.record.IdempotencyKey == r.IdempotencyKey {
			found = l
		}
	}
	rn.mu.Unlock()
	if found == nil {
		return r, &sandbox.Error{Code: sandbox.CodeConflict, Message: "a request with this idempotency key is being answered", Hint: "ask again in a moment"}
	}
	if found.record.Digest != r.Digest {
		return r, errKeyUsed()
	}
	return found.describe(), nil
}

// sameRequest returns the run that had the key first, if it was asked for alike.
func (rn *Runner) sameRequest(ctx context.Context, r, first records.Run) (records.Run, error) {
	if first.Digest != r.Digest {
		return r, errKeyUsed()
	}
	return rn.complement(ctx, first)
}
