package store

import (
	"context"
	"encoding/json"
	"fmt"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/paging"
	"pinfold/sandbox"
)

// SaveSnapshot keeps what is known of a new snapshot.
func (s *Store) SaveSnapshot(ctx context.Context, r records.Snapshot) error {
	if err := paging.CheckID("snapshot", r.Tenant, r.Info.ID); err != nil {
		return err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return s.fault("saving a snapshot", err)
	}
	return s.write(ctx, "saving a snapshot", len(body), func(ctx context.Context, w *session) error {
		var n int
		if err := w.row(ctx, "SELECT count(*) FROM snapshots WHERE tenant = ? AND id = ?", []any{r.Tenant, r.Info.ID}, &n); err != nil {
			return err
		}
		if n > 0 {
			return paging.InUse("snapshot", r.Info.ID)
		}
		_, err := w.exec(ctx, "INSERT INTO snapshots (tenant, id, created_at, body) VALUES (?, ?, ?, ?)",
			r.Tenant, r.Info.ID, paging.Nanos(r.Info.CreatedAt), string(body))
		return err
	})
}

// LoadSnapshot returns one.
func (s *Store) LoadSnapshot(ctx context.Context, tenant, id string) (records.Snapshot, error) {
	r := records.Snapshot{Tenant: tenant}
	var body []byte
	err := s.one(ctx, "SELECT body FROM snapshots WHERE tenant = ? AND id = ?", []any{tenant, id}, &body)
	if isGone(err) {
		return records.Snapshot{}, paging.NotFound("snapshot", id)
	}
	if err == nil {
		err = decodeSnapshot(body, id, &r)
	}
	return r, s.fault("reading a snapshot", err)
}

// ListSnapshots returns a tenant's, or all where that is empty, the oldest first, without
// their requests.
func (s *Store) ListSnapshots(ctx context.Context, tenant string) ([]records.Snapshot, error) {
	const doing = "listing snapshots"
	rows, err := s.reader.QueryContext(ctx, "SELECT tenant, id, body FROM snapshots WHERE ? IN ('', tenant) ORDER BY created_at, tenant, id", tenant)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	all := []records.Snapshot{}
	for rows.Next() {
		var r records.Snapshot
		var id string
		var body []byte
		err := rows.Scan(&r.Tenant, &id, &body)
		if err == nil {
			err = decodeSnapshot(body, id, &r)
		}
		if err != nil {
			return nil, s.fault(doing, err)
		}
		r.Request, r.Packages = sandbox.Create{}, sandbox.Packages{}
		all = append(all, r)
	}
	return all, s.fault(doing, rows.Err())
}

func decodeSnapshot(body []byte, id string, r *records.Snapshot) error {
	if err := json.Unmarshal(body, r); err != nil {
		return fmt.Errorf("the snapshot %s: %w", id, err)
	}
	return nil
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
