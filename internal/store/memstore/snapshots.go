package memstore

import (
	"cmp"
	"context"
	"slices"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/paging"
	"pinfold/sandbox"
)

// SaveSnapshot keeps a new reference to a snapshot.
func (s *Store) SaveSnapshot(ctx context.Context, r records.Snapshot) error {
	if err := cmp.Or(ctx.Err(), paging.CheckID("snapshot", r.Tenant, r.Info.ID)); err != nil {
		return sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{r.Tenant, r.Info.ID}
	if _, used := s.snapshots[k]; used {
		return paging.InUse("snapshot", r.Info.ID)
	}
	s.snapshots[k] = r
	return nil
}

// LoadSnapshot returns one.
func (s *Store) LoadSnapshot(ctx context.Context, tenant, id string) (records.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return records.Snapshot{}, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.snapshots[key{tenant, id}]
	if !ok {
		return r, paging.NotFound("snapshot", id)
	}
	return r, nil
}

// ListSnapshots returns a tenant's, or all where that is empty, the oldest first, without
// their requests.
func (s *Store) ListSnapshots(ctx context.Context, tenant string) ([]records.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []records.Snapshot{}
	for k, r := range s.snapshots {
		if tenant == "" || k.tenant == tenant {
			r.Request, r.Packages = sandbox.Create{}, sandbox.Packages{}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b records.Snapshot) int {
		return cmp.Or(a.Info.CreatedAt.Compare(b.Info.CreatedAt), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Info.ID, b.Info.ID))
	})
	return all, nil
}

// RemoveSnapshot forgets one.
func (s *Store) RemoveSnapshot(ctx context.Context, tenant, id string) error {
	if err := ctx.Err(); err != nil {
		return sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{tenant, id}
	if _, ok := s.snapshots[k]; !ok {
		return paging.NotFound("snapshot", id)
	}
	delete(s.snapshots, k)
	return nil
}
