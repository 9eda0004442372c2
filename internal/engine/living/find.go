package living

import (
	"context"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Sandbox finds a living sandbox of a tenant. One that has ended is an error of
// code gone; any other one of code not_found.
func (mg *Manager) Sandbox(tenant, id string) (*Sandbox, error) {
	mg.mu.Lock()
	s := mg.sandboxes[id]
	mg.mu.Unlock()
	if s != nil && s.tenant == tenant {
		return s, nil
	}
	if mg.records == nil || s != nil {
		return nil, records.NotFound("sandbox")
	}
	info, err := mg.records.LoadSandbox(context.Background(), tenant, id)
	if err != nil {
		return nil, records.OrNotFound(err, "sandbox")
	}
	gone := &Sandbox{info: info}
	return nil, gone.notRunning()
}

// SandboxInfo describes a sandbox of a tenant, also one that has ended.
func (mg *Manager) SandboxInfo(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	mg.mu.Lock()
	s := mg.sandboxes[id]
	mg.mu.Unlock()
	switch {
	case s != nil && s.tenant == tenant:
		return s.Info(), nil
	case s != nil || mg.records == nil:
		return sandbox.Info{}, records.NotFound("sandbox")
	}
	info, err := mg.records.LoadSandbox(ctx, tenant, id)
	if err != nil {
		return info, records.OrNotFound(err, "sandbox")
	}
	return info, nil
}

// Snapshots lists a tenant's snapshots, the oldest first.
func (mg *Manager) Snapshots(ctx context.Context, tenant string) ([]sandbox.Snapshot, error) {
	return mg.snapshots.List(ctx, tenant)
}

// Snapshot describes a snapshot of a tenant.
func (mg *Manager) Snapshot(ctx context.Context, tenant, id string) (sandbox.Snapshot, error) {
	r, err := mg.snapshots.Load(ctx, tenant, id)
	return r.Info, err
}

// RemoveSnapshot removes a snapshot of a tenant. Sandboxes that were made of it live on.
func (mg *Manager) RemoveSnapshot(ctx context.Context, tenant, id string) error {
	return mg.snapshots.Remove(ctx, tenant, id)
}

// Sandboxes lists a tenant's sandboxes. Living ones are described as they are
// now. Without a store there are none to list.
func (mg *Manager) Sandboxes(ctx context.Context, tenant string, q records.Query) (records.Page[sandbox.Info], error) {
	if mg.records == nil {
		return records.Page[sandbox.Info]{}, nil
	}
	page, err := mg.records.ListSandboxes(ctx, tenant, q)
	if err != nil {
		return page, sandbox.AsError(err)
	}
	for i, info := range page.Items {
		mg.mu.Lock()
		s := mg.sandboxes[info.ID]
		mg.mu.Unlock()
		if s != nil {
			page.Items[i] = s.Info()
		}
	}
	return page, nil
}
