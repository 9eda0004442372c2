package store

import (
	"context"
	"encoding/json"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/paging"
	"pinfold/sandbox"
)

// SaveSandbox inserts or replaces a sandbox's description. Its place in lists
// is where it was first saved.
func (s *Store) SaveSandbox(ctx context.Context, tenant string, info sandbox.Info) error {
	const doing = "saving a sandbox"
	if err := paging.CheckID("sandbox", tenant, info.ID); err != nil {
		return err
	}
	body, err := json.Marshal(info)
	if err != nil {
		return s.fault(doing, err)
	}
	metadata, err := json.Marshal(info.Metadata)
	if err != nil {
		return s.fault(doing, err)
	}
	args := []any{tenant, info.ID, paging.Nanos(info.CreatedAt), endOf(info), string(info.State), string(metadata), string(body)}
	return s.write(ctx, doing, len(body), func(ctx context.Context, w *session) error {
		_, err := w.exec(ctx, `INSERT INTO sandboxes (tenant, id, created_at, ended_at, state, metadata, info) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (tenant, id) DO UPDATE SET ended_at = excluded.ended_at, state = excluded.state, metadata = excluded.metadata, info = excluded.info,
				machine = CASE WHEN excluded.ended_at IS NULL THEN machine END`, args...)
		return err
	})
}

// SaveMachine adds to a sandbox what is needed to go on with it after a restart.
func (s *Store) SaveMachine(ctx context.Context, tenant, id string, m records.Machine) error {
	const doing = "saving a sandbox's machine"
	body, err := json.Marshal(m)
	if err != nil {
		return s.fault(doing, err)
	}
	return s.write(ctx, doing, len(body), func(ctx context.Context, w *session) error {
		_, err := w.exec(ctx, "UPDATE sandboxes SET machine = ? WHERE tenant = ? AND id = ? AND ended_at IS NULL", string(body), tenant, id)
		return err
	})
}

// endOf is when a sandbox ended, for the database; nil while it lives.
func endOf(info sandbox.Info) any {
	switch {
	case info.State != sandbox.StateEnded:
		return nil
	case info.EndedAt == nil:
		return paging.Nanos(info.CreatedAt)
	}
	return paging.Nanos(*info.EndedAt)
}

// LoadSandbox returns a sandbox's description.
func (s *Store) LoadSandbox(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	return find(ctx, s, sandboxRows(), "SELECT seq, info FROM sandboxes WHERE tenant = ? AND id = ?", tenant, id, scanInfo)
}

// ListSandboxes returns the sandboxes that match, in pages.
func (s *Store) ListSandboxes(ctx context.Context, tenant string, q records.Query) (records.Page[sandbox.Info], error) {
	return list(ctx, s, tenant, q, listed[sandbox.Info]{
		source: sandboxRows(), columns: "seq, created_at, id, info", choice: "state", values: texts(q.States), scan: scanInfo,
	})
}

func scanInfo(rest ...any) ([]any, func() (sandbox.Info, error)) {
	var body []byte
	return append(rest, &body), func() (sandbox.Info, error) {
		var info sandbox.Info
		err := json.Unmarshal(body, &info)
		return info, err
	}
}

// Unfinished returns the sandboxes that have not ended and the runs without a
// result, of all tenants, the oldest first.
func (s *Store) Unfinished(ctx context.Context) ([]records.Sandbox, []records.Run, error) {
	living, err := all(ctx, s, sandboxRows(), "SELECT seq, tenant, machine, info FROM sandboxes WHERE ended_at IS NULL ORDER BY seq",
		func(rest ...any) ([]any, func() (records.Sandbox, error)) {
			var o records.Sandbox
			var machine []byte
			dest, get := scanInfo(append(rest, &o.Tenant, &machine)...)
			return dest, func() (records.Sandbox, error) {
				var err error
				if o.Info, err = get(); err == nil && machine != nil {
					err = json.Unmarshal(machine, &o.Machine)
				}
				return o, err
			}
		})
	if err != nil {
		return nil, nil, err
	}
	runs, err := all(ctx, s, runRows(), "SELECT seq, "+runColumns+" FROM runs WHERE finished_at IS NULL ORDER BY seq", scanRun)
	return living, runs, err
}

// all reads every row of a question that is asked once in a server's life.
func all[T any](ctx context.Context, s *Store, from source, text string, scan func(rest ...any) ([]any, func() (T, error))) ([]T, error) {
	const doing = "looking for what an earlier life left"
	rows, err := s.reader.QueryContext(ctx, text)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	var items []T
	var bad []*damaged
	for rows.Next() {
		var seq int64
		dest, get := scan(&seq)
		item, err := scanInto(rows.Scan, dest, get)
		switch {
		case err == nil:
			items = append(items, item)
		case seq != 0:
			bad = append(bad, &damaged{seq, err})
		default:
			return nil, s.fault(doing, err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.fault(doing, err)
	}
	for _, d := range bad {
		s.putAside(ctx, from, d)
	}
	return items, nil
}
