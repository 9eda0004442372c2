package pinfold

import (
	"context"
	"io"

	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// StartRun starts a run that goes on by itself and returns as soon as it is
// recorded. Close cancels it, Shutdown waits for it.
func (l *Local) StartRun(ctx context.Context, s sandbox.Spec, o StartOptions) (RunRecord, error) {
	r, err := l.engine.Start(ctx, runs.Request{Spec: s, Tenant: records.LocalTenant, IdempotencyKey: o.IdempotencyKey, NoArtifacts: true})
	return shownRun(r), err
}

// CancelRun ends a run, whoever waits for it, and returns it as it ended, with
// what it had printed. Cancelling one that has finished changes nothing.
func (l *Local) CancelRun(ctx context.Context, id string) (RunRecord, error) {
	r, err := l.engine.CancelRun(ctx, records.LocalTenant, id)
	return shownRun(r), err
}

// WaitRun waits until a run has finished.
func (l *Local) WaitRun(ctx context.Context, id string) (RunRecord, error) {
	r, err := l.engine.AwaitRun(ctx, records.LocalTenant, id)
	if err == nil && r.State != sandbox.RunFinished {
		err = asError(ctx, context.Cause(ctx))
	}
	return shownRun(r), err
}

// WatchRun follows a run, also one that somebody else waits for, until it has
// finished, and returns what became of it.
func (l *Local) WatchRun(ctx context.Context, id string, o WatchOptions) (*sandbox.Result, error) {
	w, err := l.engine.WatchRun(ctx, records.LocalTenant, id, [2]int64{})
	if err != nil {
		return nil, err
	}
	var seen [2]int64
	to := [2]io.Writer{o.Stdout, o.Stderr}
	for {
		u, err := w.Next(ctx)
		switch {
		case err != nil:
			return nil, asError(ctx, err)
		case u.Record != nil:
			if o.State != nil {
				o.State(shownRun(*u.Record))
			}
		case u.Stream > 0:
			seen[u.Stream-1] += int64(len(u.Chunk))
			if err := write(to[u.Stream-1], u.Chunk); err != nil {
				return nil, err
			}
		default:
			for i, text := range []string{u.Result.Stdout, u.Result.Stderr} {
				if seen[i] > 0 { // all of it has come
					continue
				}
				if err := write(to[i], []byte(text)); err != nil {
					return nil, err
				}
			}
			return u.Result, nil
		}
	}
}

func write(w io.Writer, b []byte) error {
	if w == nil || len(b) == 0 {
		return nil
	}
	if _, err := w.Write(b); err != nil {
		return &sandbox.Error{Code: sandbox.CodeInternal, Message: "the output cannot be passed on: " + err.Error(), Err: err}
	}
	return nil
}

// asError says that the caller gave up, where that is why.
func asError(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return sandbox.AsError(err)
	}
	return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "gave up waiting; the run goes on", Err: err}
}
