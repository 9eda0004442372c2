package engine

import (
	"context"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

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
func (e *Engine) Templates(ctx context.Context) ([]string, error) {
	if e.options.Templates == nil {
		return []string{sandbox.TemplateHost}, nil
	}
	return e.options.Templates(ctx)
}
