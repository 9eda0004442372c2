package store

import (
	"context"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/paging"
)

const snapshotColumns = "tenant, id, sandbox, driver, template, created_at, bytes, reference"

// SaveSnapshot keeps a new reference to a snapshot.
func (s *Store) SaveSnapshot(ctx context.Context, r records.Snapshot) error {
	if err := paging.CheckID("snapshot", r.Tenant, r.ID); err != nil {
		return err
	}
	return s.write(ctx, "saving a snapshot", len(r.Reference), func(ctx context.Context, w *session) error {
		var n int
		if err := w.row(ctx, "SELECT count(*) FROM snapshots WHERE tenant = ? AND id = ?", []any{r.Tenant, r.ID}, &n); err != nil {
			return err
		}
		if n > 0 {
			return paging.InUse("snapshot", r.ID)
		}
		_, err := w.exec(ctx, "INSERT INTO snapshots ("+snapshotColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			r.Tenant, r.ID, r.Sandbox, r.Driver, r.Template, paging.Nanos(r.CreatedAt), r.Bytes, r.Reference)
		return err
	})
}

// LoadSnapshot returns one.
func (s *Store) LoadSnapshot(ctx context.Context, tenant, id string) (records.Snapshot, error) {
	dest, get := scanSnapshot()
	err := s.one(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE tenant = ? AND id = ?", []any{tenant, id}, dest...)
	if isGone(err) {
		return records.Snapshot{}, paging.NotFound("snapshot", id)
	}
	return get(), s.fault("reading a snapshot", err)
}

// ListSnapshots returns a tenant's, or all where that is empty, the oldest first.
func (s *Store) ListSnapshots(ctx context.Context, tenant string) ([]records.Snapshot, error) {
	const doing = "listing snapshots"
	rows, err := s.reader.QueryContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE ? IN ('', tenant) ORDER BY created_at, tenant, id", tenant)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	all := []records.Snapshot{}
	for rows.Next() {
		dest, get := scanSnapshot()
		if err := rows.Scan(dest...); err != nil {
			return nil, s.fault(doing, err)
		}
		all = append(all, get())
	}
	return all, s.fault(doing, rows.Err())
}

// RemoveSnapshot forgets one.
func (s *Store) RemoveSnapshot(ctx context.Context, tenant, id string) error {
	return s.write(ctx, "removing a snapshot", 0, func(ctx context.Context, w *session) error {
		var n int
		if err := w.row(ctx, "SELECT count(*) FROM snapshots WHERE tenant = ? AND id = ?", []any{tenant, id}, &n); err != nil {
			return err
		}
		if n == 0 {
			return paging.NotFound("snapshot", id)
		}
		_, err := w.exec(ctx, "DELETE FROM snapshots WHERE tenant = ? AND id = ?", tenant, id)
		return err
	})
}

func scanSnapshot() ([]any, func() records.Snapshot) {
	var r records.Snapshot
	var created int64
	return []any{&r.Tenant, &r.ID, &r.Sandbox, &r.Driver, &r.Template, &created, &r.Bytes, &r.Reference}, func() records.Snapshot {
		r.CreatedAt = time.Unix(0, created).UTC()
		return r
	}
}
