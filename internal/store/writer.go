package store

import (
	"context"
	"database/sql"
	"errors"

	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

const (
	// Changes that wait while one is written go into the next transaction
	// together, at most so many.
	maxGroup = 128
	// After about so many bytes the log is written back in the background, so
	// that no change has to wait for it.
	checkpointEvery = 4 << 20
	// What one small change adds to the log: four pages.
	changeBytes = 4 * 4096
)

// op is a change that somebody waits for. do may be called twice: the first
// time may be undone by what another change met.
type op struct {
	do   func(ctx context.Context, w *session) error
	done chan error
}

// session is the writer's connection. Only the goroutine serve uses it.
type session struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
	written  int // bytes since the last checkpoint, about
}

func (w *session) stmt(ctx context.Context, text string) (*sql.Stmt, error) {
	if st := w.prepared[text]; st != nil {
		return st, nil
	}
	st, err := w.conn.PrepareContext(ctx, text)
	if err == nil {
		w.prepared[text] = st
	}
	return st, err
}

// close closes the statements first: SQLite keeps a connection open, and with
// it the files, while it has one.
func (w *session) close() {
	for _, st := range w.prepared {
		_ = st.Close()
	}
	_ = w.conn.Close()
}

// exec runs a statement and says how many rows it changed.
func (w *session) exec(ctx context.Context, text string, args ...any) (int64, error) {
	st, err := w.stmt(ctx, text)
	if err != nil {
		return 0, err
	}
	result, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row runs a statement that returns at most one row.
func (w *session) row(ctx context.Context, text string, args []any, dest ...any) error {
	st, err := w.stmt(ctx, text)
	if err != nil {
		return err
	}
	return st.QueryRowContext(ctx, args...).Scan(dest...)
}

// write has do carried out by the writer and returns when it is committed. An
// *sandbox.Error from do is a refusal: do must not have changed anything then.
// Size is about how many bytes it adds.
func (s *Store) write(ctx context.Context, doing string, size int, do func(context.Context, *session) error) error {
	if err := ctx.Err(); err != nil {
		return explain(s.dir, doing, err)
	}
	o := op{done: make(chan error, 1), do: func(ctx context.Context, w *session) error {
		w.written += size + changeBytes
		return do(ctx, w)
	}}
	select {
	case s.ops <- o:
	case <-s.closing:
		return closed()
	case <-ctx.Done():
		return explain(s.dir, doing, ctx.Err())
	}
	return s.fault(doing, <-o.done) // it is under way: whatever becomes of it, the caller learns it
}

// serve is the only one that writes. It ends with the store, between changes.
func (s *Store) serve(ctx context.Context, w *session) {
	defer w.close()
	group := make([]op, 0, maxGroup)
	for {
		select {
		case o := <-s.ops:
			group = append(group[:0], o)
		case <-s.closing:
			return
		}
		for more := true; more && len(group) < maxGroup; {
			select {
			case o := <-s.ops:
				group = append(group, o)
			default:
				more = false
			}
		}
		s.commitGroup(ctx, w, group)
		if w.written > checkpointEvery {
			w.written = 0
			select {
			case s.grown <- struct{}{}:
			default: // it is at it
			}
		}
	}
}

// commitGroup writes changes in one transaction and tells everybody how theirs
// went. When the database fails, each gets a transaction of its own, so that
// nobody suffers from another's.
func (s *Store) commitGroup(ctx context.Context, w *session, group []op) {
	answers := make([]error, len(group))
	err := w.transact(ctx, group, answers)
	for i, o := range group {
		switch {
		case err == nil:
			o.done <- answers[i]
		case len(group) == 1:
			o.done <- err
		default:
			if alone := w.transact(ctx, group[i:i+1], answers[i:]); alone != nil {
				answers[i] = alone
			}
			o.done <- answers[i]
		}
	}
}

// transact runs changes in a transaction. Refusals are in answers; an error
// means that the transaction failed and nothing of it was written.
func (w *session) transact(ctx context.Context, group []op, answers []error) error {
	if _, err := w.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	failpoint.Hit("store.begun")
	for i, o := range group {
		answers[i] = o.do(ctx, w)
		var refusal *sandbox.Error
		if answers[i] != nil && !errors.As(answers[i], &refusal) {
			return w.undo(ctx, answers[i])
		}
	}
	if _, err := w.exec(ctx, "COMMIT"); err != nil {
		return w.undo(ctx, err)
	}
	failpoint.Hit("store.committed")
	return nil
}

// undo ends a transaction that failed with err. SQLite may have ended it
// already, then there is nothing to end.
func (w *session) undo(ctx context.Context, err error) error {
	_, _ = w.exec(ctx, "ROLLBACK")
	return err
}

// checkpoints writes the log back into the database, beside the writer.
func (s *Store) checkpoints(ctx context.Context) {
	for {
		select {
		case <-s.closing:
			return
		case <-s.grown:
		}
		// Passive: it waits for nobody and takes what it can.
		if _, err := s.maint.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
			s.log.Warn("the database's log could not be written back; it grows until it can", "error", err)
		}
	}
}
