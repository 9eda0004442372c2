package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"pinfold/sandbox"
)

// A table whose rows can be put aside when one of them cannot be read: what is
// kept of it, and where its large part is.
type source struct {
	table, what  string
	fields, body string
}

func sandboxRows() source {
	return source{
		table: "sandboxes", what: "sandbox", body: "CAST(info AS BLOB)",
		fields: "quote(created_at)||','||quote(ended_at)||','||quote(state)||','||quote(metadata)",
	}
}

func runRows() source {
	return source{
		table: "runs", what: "run", body: "(SELECT CAST(body AS BLOB) FROM results WHERE run = seq)",
		fields: "quote(created_at)||','||quote(finished_at)||','||quote(language)||','||quote(metadata)||','||quote(idempotency_key)||','||quote(digest)||','||quote(status)||','||quote(cause)||','||quote(facts)||','||quote(seen)",
	}
}

// damaged says that one row cannot be understood; the rest of its table can.
type damaged struct {
	seq int64
	err error
}

func (d *damaged) Error() string { return fmt.Sprintf("row %d: %v", d.seq, d.err) }
func (d *damaged) Unwrap() error { return d.err }

// putAside moves a damaged row to quarantined_rows and reports it. Without
// success the row stays, and is reported again the next time.
func (s *Store) putAside(ctx context.Context, from source, d *damaged) {
	err := s.write(context.WithoutCancel(ctx), "putting a damaged row aside", 0, func(ctx context.Context, w *session) error {
		return w.putAside(ctx, from, d, s.now().UnixNano())
	})
	s.log.Error("a row of the database could not be read and was put aside in quarantined_rows",
		"table", from.table, "row", d.seq, "reason", d.err, "error", err)
}

func (w *session) putAside(ctx context.Context, from source, d *damaged, now int64) error {
	reason := sandbox.SafeText(d.err.Error(), 300)
	_, err := w.exec(ctx, `INSERT INTO quarantined_rows (at, source, tenant, id, reason, fields, body)
		SELECT ?, ?, tenant, id, ?, `+from.fields+`, `+from.body+` FROM `+from.table+` WHERE seq = ?`, now, from.table, reason, d.seq)
	if err != nil {
		return err
	}
	_, err = w.exec(ctx, "DELETE FROM "+from.table+" WHERE seq = ?", d.seq)
	return err
}

// Check reads the whole database and says (state_corrupt) when its structure is
// damaged or a row of it cannot be read. It changes nothing.
func (s *Store) Check(ctx context.Context) error {
	const doing = "checking the database"
	if err := s.pragmaCheck(ctx, s.reader, "PRAGMA integrity_check(20)"); err != nil {
		return s.fault(doing, err)
	}
	lost, err := textColumn(ctx, s.reader, `SELECT "table"||' row '||rowid FROM pragma_foreign_key_check LIMIT 5`)
	if err != nil {
		return s.fault(doing, err)
	}
	unreadable, err := textColumn(ctx, s.reader, `
		SELECT 'sandboxes row '||seq FROM sandboxes WHERE NOT (json_valid(info) AND json_valid(metadata))
		UNION ALL SELECT 'runs row '||seq FROM runs WHERE NOT json_valid(metadata)
		UNION ALL SELECT 'results row '||run FROM results WHERE NOT json_valid(body)
		UNION ALL SELECT 'tenants row '||quote(name) FROM tenants WHERE NOT json_valid(quota) LIMIT 5`)
	if err != nil {
		return s.fault(doing, err)
	}
	if bad := slices.Concat(lost, unreadable); len(bad) > 0 {
		return &sandbox.Error{
			Code: sandbox.CodeStateCorrupt, Message: fmt.Sprintf("%s has rows that cannot be read: %q", databaseFile(s.dir), bad),
			Hint: "the server puts such rows aside when it meets them; all else goes on",
		}
	}
	return nil
}

// Quarantined returns how many damaged rows have been put aside.
func (s *Store) Quarantined(ctx context.Context) (int, error) {
	var n int
	err := s.one(ctx, "SELECT count(*) FROM quarantined_rows", nil, &n)
	return n, s.fault("counting damaged rows", err)
}

// one reads one row.
func (s *Store) one(ctx context.Context, text string, args []any, dest ...any) error {
	st, err := s.stmt(ctx, text)
	if err != nil {
		return err
	}
	return st.QueryRowContext(ctx, args...).Scan(dest...)
}

// isGone says that there was no such row.
func isGone(err error) bool { return errors.Is(err, sql.ErrNoRows) }
