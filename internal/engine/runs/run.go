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
// When Run returns, nothing of the sandbox is left on the host.
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
	if err := j.look(ctx); err != nil {
		if j.place != nil {
			j.place.Leave()
			rn.running.Done()
		}
		return nil, rn.refused(ctx, err)
	}
	if j.place == nil {
		if err := rn.enter(j, false); err != nil {
			return nil, rn.refused(ctx, err)
		}
	}
	defer rn.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(rn.runCtx, func() { cancel(execution.ErrShutDown) })()

	queued := time.Now()
	release, err := j.place.Wait(ctx)
	if err != nil {
		if ctx.Err() == nil {
			return nil, rn.refused(ctx, err)
		}
		j.judge(verdict.Evidence{Limits: j.spec.Limits, Trigger: execution.Cancelled(ctx)})
		return j.result, nil
	}
	failpoint.Hit("run.admitted")
	j.live.admitted()
	j.room = newRoom(release)
	defer j.settle()
	rn.observer.Queued(time.Since(queued))
	j.result.Timings.QueueMS = execution.Milliseconds(time.Since(queued))
	if j.request.Started != nil {
		j.request.Started(j.result.ID)
	}
	rn.observer.RunStarted(j.request.Tenant)
	if err := j.run(ctx); err != nil {
		if ctx.Err() == nil {
			return nil, rn.refused(ctx, err)
		}
		j.judge(verdict.Evidence{Limits: j.spec.Limits, Trigger: execution.Cancelled(ctx)})
	}
	j.passGate()
	rn.observer.RunFinished(j.result)
	return j.result, nil
}

// enter counts a job among those for which a drain waits, and joins the queue.
func (rn *Runner) enter(j *job, late bool) error {
	rn.mu.Lock()
	if rn.draining {
		rn.mu.Unlock()
		return admission.ShuttingDown()
	}
	rn.running.Add(1)
	rn.mu.Unlock()
	var err error
	j.place, err = rn.gate.Enter(j.request.Tenant, admission.Demand{Run: true, MemoryBytes: j.plan.Limits.MemoryBytes, CPUs: j.plan.Limits.CPUs}, late)
	if err != nil {
		rn.running.Done()
	}
	return err
}
