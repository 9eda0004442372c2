package engine

import (
	"context"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Sandbox finds a living sandbox of a tenant. One that has ended is an error of
// code gone; any other one of code not_found.
func (e *Engine) Sandbox(tenant, id string) (*Sandbox, error) {
	e.mu.Lock()
	s := e.sandboxes[id]
	e.mu.Unlock()
	if s != nil && s.tenant == tenant {
		return s, nil
	}
	if e.records == nil || s != nil {
		return nil, records.NotFound("sandbox")
	}
	info, err := e.records.LoadSandbox(context.Background(), tenant, id)
	if err != nil {
		return nil, records.OrNotFound(err, "sandbox")
	}
	gone := &Sandbox{info: info}
	return nil, gone.notRunning()
}

// SandboxInfo describes a sandbox of a tenant, also one that has ended.
func (e *Engine) SandboxInfo(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	e.mu.Lock()
	s := e.sandboxes[id]
	e.mu.Unlock()
	switch {
	case s != nil && s.tenant == tenant:
		return s.Info(), nil
	case s != nil || e.records == nil:
		return sandbox.Info{}, records.NotFound("sandbox")
	}
	info, err := e.records.LoadSandbox(ctx, tenant, id)
	if err != nil {
		return info, records.OrNotFound(err, "sandbox")
	}
	return info, nil
}

// Sandboxes lists a tenant's sandboxes. Living ones are described as they are
// now. Without a store there are none to list.
func (e *Engine) Sandboxes(ctx context.Context, tenant string, q records.Query) (records.Page[sandbox.Info], error) {
	if e.records == nil {
		return records.Page[sandbox.Info]{}, nil
	}
	page, err := e.records.ListSandboxes(ctx, tenant, q)
	if err != nil {
		return page, sandbox.AsError(err)
	}
	for i, info := range page.Items {
		e.mu.Lock()
		s := e.sandboxes[info.ID]
		e.mu.Unlock()
		if s != nil {
			page.Items[i] = s.Info()
		}
	}
	return page, nil
}

// Usage returns a tenant's account of the days from and to, both included.
func (e *Engine) Usage(ctx context.Context, tenant string, from, to time.Time) ([]records.DayUsage, error) {
	if e.records == nil {
		return nil, nil
	}
	return e.records.UsageOf(ctx, tenant, from, to)
}

// SetPool adds a pool, or changes the one of that name. A change of shape makes
// all its machines anew.
func (e *Engine) SetPool(ctx context.Context, spec sandbox.PoolSpec) (sandbox.PoolInfo, error) {
	return e.pools.Set(ctx, spec)
}

// RemovePool ends a pool. What it has handed out lives on.
func (e *Engine) RemovePool(_ context.Context, name string) error { return e.pools.Remove(name) }

// Pools describes all pools, by name.
func (e *Engine) Pools() []sandbox.PoolInfo { return e.pools.List() }

// Templates names the templates there are.
func (e *Engine) Templates() []string { return []string{sandbox.TemplateHost} }
