package pinfold

import (
	"context"
	"iter"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// GetRun returns what is kept of a run.
func (l *Local) GetRun(ctx context.Context, id string) (RunRecord, error) {
	r, err := l.engine.RunRecord(ctx, records.LocalTenant, id)
	return shownRun(r), err
}

func shownRun(r records.Run) RunRecord {
	return RunRecord{
		ID: r.ID, State: r.State, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Language: r.Language, Metadata: r.Metadata, Status: r.Status, Cause: r.Cause, Result: r.Result,
	}
}

// Runs returns the runs that match. An error is the last pair.
func (l *Local) Runs(ctx context.Context, f Filter) iter.Seq2[RunRecord, error] {
	return pages(f, shownRun, func(q records.Query) (records.Page[records.Run], error) {
		return l.engine.Runs(ctx, records.LocalTenant, q)
	})
}

// Sandboxes returns the sandboxes that match: without Filter.States also those
// that have ended, as long as they are kept. An error is the last pair.
func (l *Local) Sandboxes(ctx context.Context, f Filter) iter.Seq2[sandbox.Info, error] {
	same := func(i sandbox.Info) sandbox.Info { return i }
	return pages(f, same, func(q records.Query) (records.Page[sandbox.Info], error) {
		return l.engine.Sandboxes(ctx, records.LocalTenant, q)
	})
}

// pages asks for one page after the other, as they are needed.
func pages[A, B any](f Filter, show func(A) B, ask func(records.Query) (records.Page[A], error)) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		q := records.Query{
			States: f.States, RunStates: f.RunStates, Statuses: f.Statuses, Languages: f.Languages, Since: f.Since, Before: f.Before,
			Metadata: f.Metadata, Oldest: f.Oldest, Limit: f.PageSize,
		}
		for {
			page, err := ask(q)
			if err != nil {
				var none B
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(show(item), nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Cursor = page.Next
		}
	}
}
