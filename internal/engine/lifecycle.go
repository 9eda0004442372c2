package engine

import (
	"context"
	"fmt"
	"log/slog"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/runs"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// Open makes the engine ready to serve: what an earlier, dead process left on
// the host is removed; sandboxes that it had are gone on with where their driver's
// machines outlive a process (driver.Keeper), and recorded as lost elsewhere; so are
// runs without a result, each exactly once; the pools begin to fill. An engine
// that only runs one program need not be opened.
func (e *Engine) Open(ctx context.Context) error {
	e.Runner.Open()
	found, err := e.Leftovers(ctx)
	for _, l := range found {
		if l.Err != nil {
			e.log.Warn("could not remove what an earlier process had left behind", "kind", l.Kind, "name", l.Name, "error", l.Err)
			continue
		}
		e.log.Warn("removed what an earlier process had left behind", "kind", l.Kind, "name", l.Name)
	}
	failpoint.Hit("recover.leftovers")
	if err != nil {
		return fmt.Errorf("removing what an earlier process left behind: %w", err)
	}
	if err := e.recover(ctx); err != nil {
		return err
	}
	if err := e.snapshots.Collect(ctx); err != nil {
		return err
	}
	for _, p := range e.options.Pools {
		if _, err := e.SetPool(ctx, p); err != nil {
			return sandbox.AsError(err).WithField("pools." + p.Name + "." + sandbox.AsError(err).Field)
		}
	}
	if e.records != nil {
		e.background.Go(func() { e.records.Maintain(e.quit, e.options.Retention) })
		e.background.Go(func() { e.snapshots.Maintain(e.quit) })
	}
	return nil
}

// recover goes on with what an earlier process had going, or records its end. Without
// records nobody knows what belongs to whom, and machines that outlive a process are left
// alone: they may be a server's that is about to come back.
func (e *Engine) recover(ctx context.Context) error {
	if e.records == nil {
		return nil
	}
	sandboxes, unfinished, err := e.records.Unfinished(ctx)
	if err != nil {
		return err
	}
	adopted, err := e.Recover(ctx, sandboxes)
	if err != nil {
		return err
	}
	failpoint.Hit("recover.sandboxes")
	for _, r := range unfinished {
		lost := runs.Lost(r)
		if err := e.Attest(ctx, r, lost); err != nil {
			return err
		}
		if err := e.records.FinishRun(ctx, r.Tenant, r.ID, lost); err != nil {
			return err
		}
	}
	failpoint.Hit("recover.runs")
	if adopted > 0 {
		e.log.Info("went on with sandboxes of an earlier process", "sandboxes", adopted)
	}
	if lost := len(sandboxes) - adopted; lost+len(unfinished) > 0 {
		e.log.Warn("recorded as lost with an earlier process", "sandboxes", lost, "runs", len(unfinished))
	}
	return nil
}

// Ready returns nil when the engine takes work, or why it does not: it is
// shutting down, or nothing new can be recorded.
func (e *Engine) Ready(ctx context.Context) error {
	if err := e.TakesWork(); err != nil || e.records == nil {
		return err
	}
	return e.records.Ready(ctx)
}

// Drain takes no new work, waits for the runs that are under way until ctx
// ends, cancels the rest, and ends all sandboxes and pools. When it returns nil
// nothing is left but the sandboxes whose machines outlive us and are recorded.
func (e *Engine) Drain(ctx context.Context) error {
	e.draining.Store(true)
	e.Refuse()
	e.gate.Close(admission.ShuttingDown())
	e.pools.Drain(admission.ShuttingDown())
	e.Runner.Drain(ctx)
	e.Manager.Drain()
	return nil
}

// discardLog is the log of an engine that was given none.
func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
