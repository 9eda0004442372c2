package runs

import (
	"context"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// recordable says why a run must not begin: nobody could record it.
func (rn *Runner) recordable() error {
	if rn.auditor == nil || !rn.auditor.Strict() {
		return nil
	}
	return rn.auditor.Check()
}

// Attest records a run's result in the audit log, where there is one, and puts the receipt
// into it. Where that fails it says so in the result, or returns the error: then the
// result is nobody's to see.
func (rn *Runner) Attest(ctx context.Context, r records.Run, final *sandbox.Result) error {
	return rn.attest(ctx, r, nil, final)
}

// attest is Attest for a job; nil: nothing is known of what was asked for.
func (rn *Runner) attest(ctx context.Context, r records.Run, j *job, final *sandbox.Result) error {
	if rn.auditor == nil {
		return nil
	}
	e := records.RunEvent(final)
	e.Entry.Tenant, e.Entry.Key, e.Entry.StartedAt, e.Entry.Isolation.Level = r.Tenant, records.KeyOf(ctx), r.CreatedAt, rn.level(final.Isolation.Driver)
	if j != nil {
		e.AddSpec(&j.spec)
		e.AddAsked(j.asked())
		if again := j.request.Again; again != nil {
			e.Entry.Origin = again.Result.ID
		}
	}
	receipt, err := rn.auditor.Record(ctx, e)
	if err == nil {
		final.Receipt = receipt
		return nil
	}
	rn.log.Error("a run is not in the audit log", "run", r.ID, "tenant", r.Tenant, "error", err)
	if rn.auditor.Strict() {
		missing := sandbox.AsError(err)
		return &sandbox.Error{Code: missing.Code, Message: "the program ran, and its result is withheld: " + missing.Message, Hint: missing.Hint, Err: err}
	}
	final.ReceiptMissing = sandbox.AsError(err)
	return nil
}
