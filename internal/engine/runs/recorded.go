package runs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/internal/headroom"
	"pinfold/sandbox"
)

// runKey is one use of an idempotency key.
type runKey struct{ tenant, key string }

// keyClaim is a run that others with the same key wait for.
type keyClaim struct{ done chan struct{} }

// record runs a job and keeps its result. The record comes before everything
// else, so that a run whose server dies is found and reported as lost.
func (rn *Runner) record(ctx context.Context, j *job) (*sandbox.Result, error) {
	r := newRecord(ctx, j)
	if r.IdempotencyKey != "" {
		release := rn.claimKey(runKey{r.Tenant, r.IdempotencyKey})
		if release == nil {
			return rn.earlier(ctx, r)
		}
		defer release()
		ctx = context.WithoutCancel(ctx)
	}
	ctx, j.live = rn.track(ctx, r, j.stdin)
	defer rn.untrack(j.live)
	earlier, err := rn.beginRun(ctx, r)
	if err != nil {
		return nil, rn.refused(ctx, err)
	}
	if earlier != nil {
		return repeat(r, *earlier)
	}
	failpoint.Hit("run.recorded")
	return rn.complete(ctx, j, r)
}

// beginRun records a run, also when its caller goes away meanwhile: a write that is
// cut off may have been done all the same, and then nobody would give the run a result.
func (rn *Runner) beginRun(ctx context.Context, r records.Run) (earlier *records.Run, err error) {
	return rn.records.BeginRun(context.WithoutCancel(ctx), r)
}

func newRecord(ctx context.Context, j *job) records.Run {
	return records.Run{
		ID: j.result.ID, Tenant: j.request.Tenant, CreatedAt: time.Now().UTC().Round(0), Language: j.result.Language,
		Metadata: j.spec.Metadata, IdempotencyKey: j.request.IdempotencyKey, Digest: digest(j.request.Spec),
		Facts: j.facts(ctx),
	}
}

// complete performs a job that is recorded, and keeps its result. Nobody may be there
// to whom a panic could be told: it is an error of this run, and of no other.
func (rn *Runner) complete(ctx context.Context, j *job, r records.Run) (result *sandbox.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			rn.log.Error("panic", "run", r.ID, "panic", p, "stack", string(debug.Stack()))
			result, err = nil, rn.refused(ctx, &sandbox.Error{Code: sandbox.CodeInternal, Message: "the server failed"})
			final := j.failed(r, err)
			_ = rn.attest(ctx, r, j, final) // it is an error already
			rn.keepResult(j, r, final)
		}
	}()
	result, err = rn.perform(headroom.With(ctx, nil), j) // what a run takes for itself is no answer's
	final := result
	if err != nil {
		final = j.failed(r, err)
	}
	if withheld := rn.attest(ctx, r, j, final); withheld != nil {
		result, err = nil, withheld
		used := final.Usage
		final = j.failed(r, withheld)
		final.Usage = used // it counts all the same
	}
	rn.keepResult(j, r, final)
	u := final.Usage
	rn.records.Account(r.Tenant, records.Consumption{
		Runs: 1, CPUMS: u.CPUMS, WallMS: u.WallMS, MemoryMiBMS: u.MemoryPeakBytes >> 20 * u.WallMS,
		OutputBytes: final.StdoutBytes + final.StderrBytes, ArtifactBytes: artifactBytes(final),
	})
	return result, err
}

func (rn *Runner) keepResult(j *job, r records.Run, final *sandbox.Result) {
	rn.records.KeepResult(r.Tenant, r.ID, final)
	failpoint.Hit("run.finished")
	j.live.finish(final)
}

func artifactBytes(r *sandbox.Result) (n int64) {
	for _, a := range r.Artifacts {
		n += a.Size
	}
	return n
}

// claimKey claims an idempotency key in this process. The result gives it back; nil
// says that somebody else has it.
func (rn *Runner) claimKey(key runKey) (release func()) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.claims[key] != nil {
		return nil
	}
	f := &keyClaim{done: make(chan struct{})}
	rn.claims[key] = f
	return func() {
		rn.mu.Lock()
		defer rn.mu.Unlock()
		delete(rn.claims, key)
		close(f.done)
	}
}

// earlier waits for the run that has the key and gives its result. The run goes on
// when ctx ends, and may then have hours before it; the one who asked again does not.
func (rn *Runner) earlier(ctx context.Context, r records.Run) (*sandbox.Result, error) {
	rn.mu.Lock()
	f := rn.claims[runKey{r.Tenant, r.IdempotencyKey}]
	rn.mu.Unlock()
	if f != nil {
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, rn.refused(ctx, context.Cause(ctx))
		}
	}
	found, err := rn.beginRun(ctx, r)
	switch {
	case err != nil:
		return nil, rn.refused(ctx, err)
	case found != nil:
		return repeat(r, *found)
	}
	// The first one never got as far as its record, and now ours stands there.
	err = &sandbox.Error{Code: sandbox.CodeConflict, Message: "the first request with this idempotency key was refused", Hint: "send it again"}
	rn.records.KeepResult(r.Tenant, r.ID, failedResult(r, err))
	return nil, err
}

// repeat gives the result of the run that had the key first.
func repeat(r, first records.Run) (*sandbox.Result, error) {
	switch {
	case first.Digest != r.Digest:
		return nil, errKeyUsed()
	case first.Result == nil:
		return nil, &sandbox.Error{Code: sandbox.CodeConflict, Message: "the first request with this idempotency key is still under way", Hint: "ask again in a moment"}
	case first.Result.Status == sandbox.StatusError && first.Result.Error != nil && first.Result.Cause.Kind == "":
		return nil, first.Result.Error
	}
	return first.Result, nil
}

func errKeyUsed() error {
	return &sandbox.Error{
		Code: sandbox.CodeIdempotency, Field: "Idempotency-Key", Message: "the key was used for another request", Hint: "use a new key for each request",
	}
}

// failedResult is what is kept of a run that was refused or could not start.
func failedResult(r records.Run, err error) *sandbox.Result {
	result := errorResult(r)
	result.Error = sandbox.AsError(err)
	return result
}

// failed is failedResult of a job, with what was seen and decided before that.
func (j *job) failed(r records.Run, err error) *sandbox.Result {
	f := failedResult(r, err)
	f.Profile = j.result.Profile
	f.Policy, f.Findings, f.FindingsUnread, f.FindingsMissed = j.result.Policy, j.result.Findings, j.result.FindingsUnread, j.result.FindingsMissed
	return f
}

// errorResult is what is known of a run of which nothing else is.
func errorResult(r records.Run) *sandbox.Result {
	return &sandbox.Result{
		ID: r.ID, Status: sandbox.StatusError, Language: r.Language, Metadata: r.Metadata,
		Results: []sandbox.Rich{}, Artifacts: []sandbox.Artifact{},
		Isolation: sandbox.Isolation{Enforced: []string{}, NotEnforced: []sandbox.Gap{}},
	}
}

// digest tells one request from another.
func digest(s sandbox.Spec) string {
	b, err := json.Marshal(s)
	if err != nil { // strings and numbers only: cannot happen
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Lost is the result of a run whose server died.
func Lost(r records.Run) *sandbox.Result {
	result := errorResult(r)
	result.Cause = sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "the server ended before the run had", Hint: "run it again; unless it waited for room or for approval, it may have run in part"}
	return result
}
