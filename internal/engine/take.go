package engine

import (
	"context"
	"time"

	"pinfold/internal/driver"
)

// machine gives a machine for a plan: a waiting one if a pool has its shape, or
// else a new one. A plan that is not plain has mounts.
func (e *Engine) machine(ctx context.Context, d driver.Driver, plan driver.Plan, plain bool) (*session, *pool, error) {
	if plain {
		of := shapeOf(plan.Template, d.Name(), plan.Limits)
		if w, p := e.takeWarm(ctx, of, plan, false); w != nil {
			return w.session, p, nil
		}
		missed(e.poolsOf(of))
	}
	e.making.Add(1)
	defer e.making.Add(-1)
	s, err := openSession(ctx, d, plan)
	return s, nil, err
}

// takeWarm takes what waits in a pool of that shape, or forks it at once; fresh
// says that it must not be a fork.
func (e *Engine) takeWarm(ctx context.Context, of shape, plan driver.Plan, fresh bool) (*waiting, *pool) {
	fitting := e.poolsOf(of)
	for _, p := range fitting {
		if fresh && p.forks() {
			continue
		}
		if w := p.take(); w != nil {
			return w, p
		}
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

// missed counts a request that none of the pools of its shape could serve.
func missed(pools []*pool) {
	for _, p := range pools {
		p.mu.Lock()
		p.misses++
		p.mu.Unlock()
	}
}

// forks says whether the pool's interpreters are forks.
func (p *pool) forks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) > 0 && p.waiting[0].interpreter != nil && p.waiting[0].interpreter.forked
}

// forkNow makes a machine with a fork for a request that found none waiting:
// that takes less than to start an interpreter. It returns nil where there is
// nothing to fork from, or no room in the pool, or the fork fails.
func (p *pool) forkNow(ctx context.Context, plan driver.Plan, fresh bool) *waiting {
	if fresh || !p.nursery.ready() {
		return nil
	}
	p.mu.Lock()
	spec := p.spec
	if p.closed || spec.Max > 0 && len(p.waiting)+p.filling+p.inUse >= spec.Max {
		p.mu.Unlock()
		return nil
	}
	p.inUse++
	p.mu.Unlock()
	p.engine.making.Add(1)
	w, ok, err := p.nursery.fork(ctx, plan, spec)
	p.engine.making.Add(-1)
	if err == nil && ok {
		p.mu.Lock()
		p.forked++
		p.used = time.Now()
		p.mu.Unlock()
		return w
	}
	p.returned()
	if err != nil && ctx.Err() == nil {
		p.engine.log.Warn("cannot fork an interpreter", "pool", spec.Name, "error", err)
	}
	return nil
}
