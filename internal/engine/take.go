package engine

import (
	"context"

	"pinfold/internal/driver"
)

// machine gives a machine for a plan: a waiting one if a pool has its shape, or
// else a new one. A plan that is not plain has mounts.
func (e *Engine) machine(ctx context.Context, d driver.Driver, plan driver.Plan, plain bool) (*session, *pool, error) {
	if plain {
		if w, p := e.takeWarm(ctx, d, plan, warmKey{}, false); w != nil {
			return w.session, p, nil
		}
	}
	e.making.Add(1)
	defer e.making.Add(-1)
	s, err := openSession(ctx, d, plan)
	return s, nil, err
}

// takeWarm takes what waits in a pool with machines like the plan's, and with
// that interpreter; fresh says that it must not be a fork.
func (e *Engine) takeWarm(ctx context.Context, d driver.Driver, plan driver.Plan, interpreter warmKey, fresh bool) (*waiting, *pool) {
	key := shapeOf(plan.Template, d.Name(), plan.Limits)
	key.interpreter = interpreter
	fitting := e.poolsOf(key)
	for _, p := range fitting {
		if fresh && p.forks() {
			continue
		}
		if w := p.take(); w != nil {
			return w, p
		}
	}
	for _, p := range fitting {
		p.missed()
	}
	return e.forkWarm(ctx, fitting, plan, fresh)
}

// forkWarm forks in one of the pools, where that can be done at once.
func (e *Engine) forkWarm(ctx context.Context, pools []*pool, plan driver.Plan, fresh bool) (*waiting, *pool) {
	for _, p := range pools {
		if w := p.forkNow(ctx, plan, fresh); w != nil {
			return w, p
		}
	}
	return nil, nil
}

// poolsOf returns the pools of a shape.
func (e *Engine) poolsOf(key shape) []*pool {
	e.mu.Lock()
	defer e.mu.Unlock()
	var fitting []*pool
	for _, p := range e.pools {
		if p.shape == key {
			fitting = append(fitting, p)
		}
	}
	return fitting
}

// missed counts a request that found nothing.
func (p *pool) missed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses++
}

// forks says whether the pool's interpreters are forks.
func (p *pool) forks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) > 0 && p.waiting[0].interpreter != nil && p.waiting[0].interpreter.forked
}
