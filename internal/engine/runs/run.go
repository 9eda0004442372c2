package runs

import (
	"cmp"
	"context"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// Run makes a sandbox, runs the program in it, destroys the sandbox and says
// what happened.
//
// The error is nil whenever the program was started: what became of it is in
// the Result. Otherwise the error is a *sandbox.Error, and nothing was run. When ctx
// ends, the sandbox is destroyed at once and the result's cause is "cancelled".
// When Run returns, nothing of the sandbox is left on the host, unless the Runner destroys
// later or Result.Cleanup says what is left.
func (rn *Runner) Run(ctx context.Context, req Request) (*sandbox.Result, error) {
	req.Tenant = cmp.Or(req.Tenant, records.LocalTenant)
	j, err := rn.prepare(ctx, req)
	if err != nil {
		return nil, rn.refused(ctx, err)
	}
	defer close(j.told)
	if rn.records == nil {
		return rn.perform(ctx, j)
	}
	return rn.record(ctx, j)
}

// refused counts a run that never started.
func (rn *Runner) refused(ctx context.Context, err error) error {
	err = execution.CallerGone(ctx, err)
	rn.observer.Refused(sandbox.AsError(err).Code)
	return err
}

// perform waits for room, runs the job and counts it.
func (rn *Runner) perform(ctx context.Context, j *job) (*sandbox.Result, error) {
	defer j.stands()
	if !j.counted {
		if err := rn.count(); err != nil {
			return nil, rn.refused(ctx, err)
		}
	}
	defer rn.running.Done()
	err := j.govern(ctx)
	if err == nil {
		err = j.fetch(ctx)
	}
	defer j.used.Release()
	if err != nil {
		if j.place != nil {
			j.place.Leave()
		}
		if ctx.Err() != nil {
			return j.cancelled(ctx), nil
		}
		return nil, rn.refused(ctx, err)
	}
	if j.place == nil {
		if err := rn.enter(j); err != nil {
			return nil, rn.refused(ctx, err)
		}
	}
	j.stands()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(rn.runCtx, func() { cancel(execution.ErrShutDown) })()

	queued := time.Now()
	release, err := j.place.Wait(ctx)
	if err != nil {
		if ctx.Err() == nil {
			return nil, rn.refused(ctx, err)
		}
		return j.cancelled(ctx), nil
	}
	failpoint.Hit("run.admitted")
	j.live.admitted()
	j.room = newRoom(release)
	defer j.settle()
	rn.observer.Queued(time.Since(queued))
	j.result.Timings.QueueMS = execution.Milliseconds(time.Since(queued))
	j.begun()
	rn.observer.RunStarted(j.request.Tenant)
	most := rn.policy.Most(j.spec.Profile, j.result.Policy)
	if err := j.run(ctx); err != nil {
		if ctx.Err() == nil {
			return nil, rn.refused(ctx, most.Error(err, j.spec.Limits))
		}
		j.cancelled(ctx)
	}
	j.result.Cause = most.Cause(j.result.Cause, j.spec.Limits)
	j.passGate(ctx)
	j.compare()
	rn.observer.RunFinished(j.result)
	return j.result, nil
}

// cancelled is the result of a job whose caller did not wait for its end.
func (j *job) cancelled(ctx context.Context) *sandbox.Result {
	j.judge(verdict.Evidence{Limits: j.spec.Limits, Trigger: execution.Cancelled(ctx)})
	return j.result
}

// count counts a job among those for which a drain waits, until running.Done is called.
func (rn *Runner) count() error {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.draining {
		return admission.ShuttingDown()
	}
	rn.running.Add(1)
	return nil
}

// enter joins the queue.
func (rn *Runner) enter(j *job) (err error) {
	j.place, err = rn.gate.Enter(j.request.Tenant, j.demand(), j.late)
	return err
}
