package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

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
	for _, p := range e.options.Pools {
		if _, err := e.SetPool(ctx, p); err != nil {
			return sandbox.AsError(err).WithField("pools." + p.Name + "." + sandbox.AsError(err).Field)
		}
	}
	if e.records != nil {
		e.background.Go(func() { e.records.Maintain(e.quit, e.options.Retention) })
	}
	return nil
}

// recover goes on with what an earlier process had going, or records its end.
func (e *Engine) recover(ctx context.Context) error {
	found, err := e.keptMachines(ctx)
	if err != nil {
		return err
	}
	if e.records == nil {
		e.destroyUnknown(ctx, found)
		return nil
	}
	sandboxes, unfinished, err := e.records.Unfinished(ctx)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Round(0)
	lost := sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "the server ended while it lived", Hint: "create it again"}
	gone := 0
	for _, o := range sandboxes {
		if e.adopt(ctx, o, found) {
			continue
		}
		gone++
		o.Info.State, o.Info.EndedAt, o.Info.Cause = sandbox.StateEnded, &now, &lost
		if err := e.records.SaveSandbox(ctx, o.Tenant, o.Info); err != nil {
			return err
		}
	}
	e.destroyUnknown(ctx, found)
	failpoint.Hit("recover.sandboxes")
	for _, r := range unfinished {
		if err := e.records.FinishRun(ctx, r.Tenant, r.ID, runs.Lost(r)); err != nil {
			return err
		}
	}
	failpoint.Hit("recover.runs")
	if n := len(sandboxes) - gone; n > 0 {
		e.log.Info("went on with sandboxes of an earlier process", "sandboxes", n)
	}
	if n := gone + len(unfinished); n > 0 {
		e.log.Warn("recorded as lost with an earlier process", "sandboxes", gone, "runs", len(unfinished))
	}
	return nil
}

// Ready returns nil when the engine takes work, or why it does not: it is
// shutting down, or nothing new can be recorded.
func (e *Engine) Ready(ctx context.Context) error {
	if err := e.takesWork(); err != nil || e.records == nil {
		return err
	}
	return e.records.Ready(ctx)
}

// takesWork is Ready as far as the engine knows by itself.
func (e *Engine) takesWork() error {
	e.mu.Lock()
	draining := e.draining
	e.mu.Unlock()
	if draining {
		return admission.ShuttingDown()
	}
	if n := e.records.Unwritten(); n > 0 {
		return admission.Busy(sandbox.CodeInsufficient, fmt.Sprintf("%d records cannot be written", n), "make room on the disk of the state directory; the log has the reason", 5*time.Second)
	}
	return nil
}

// Drain takes no new work, waits for the runs that are under way until ctx
// ends, cancels the rest, and ends all sandboxes and pools. When it returns nil
// nothing is left but the sandboxes whose machines outlive us and are recorded.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	e.gate.Close(admission.ShuttingDown())

	e.pools.Drain(admission.ShuttingDown())
	e.Runner.Drain(ctx)
	for _, s := range e.living() {
		<-s.settled()
		if s.leave() {
			continue
		}
		s.endFor(sandbox.Cause{Kind: sandbox.CauseDestroyed, Evidence: "the server was shut down"})
		<-s.ended
	}
	return nil
}

// settled is closed when a sandbox is no longer being created.
func (s *Sandbox) settled() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s.Info().State == sandbox.StateCreating {
			time.Sleep(time.Millisecond)
		}
	}()
	return done
}

// living returns the sandboxes that have not ended.
func (e *Engine) living() []*Sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*Sandbox, 0, len(e.sandboxes))
	for _, s := range e.sandboxes {
		all = append(all, s)
	}
	return all
}

// discardLog is the log of an engine that was given none.
func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
