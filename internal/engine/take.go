package engine

import (
	"context"
	"errors"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
)

// machine gives a machine for a plan: a waiting one if a pool has its shape, or
// else a new one. A plan that is not plain has mounts.
func (e *Engine) machine(ctx context.Context, d driver.Driver, plan driver.Plan, plain bool, require []string) (*execution.Session, *pool, error) {
	if plain {
		of := shapeOf(plan.Template, d.Name(), plan.Limits)
		if w, p := e.takeWarm(ctx, of, plan, require); w != nil {
			return w.session, p, nil
		}
		missed(e.poolsOf(of))
	}
	e.making.Add(1)
	defer e.making.Add(-1)
	s, err := execution.Open(ctx, d, plan)
	return s, nil, err
}

// obtain is the one way in which requests get machines, however those are made:
// cold, from a pool, by a fork. It holds the posture of what was made, not of what
// was planned, against what the request requires, before anything of the request
// is in there.
func obtain(ctx context.Context, require []string, get func() (*execution.Session, *pool, error)) (*execution.Session, *pool, error) {
	s, p, err := get()
	if err != nil {
		return nil, nil, err
	}
	if err = s.Plan.Meets(require); err == nil {
		return s, p, nil
	}
	if closeErr := s.Close(ctx); closeErr != nil {
		err = errors.Join(err, closeErr)
	} else if p != nil {
		p.returned()
	}
	return nil, nil, err
}

// takeWarm takes what waits in a pool of that shape, or forks it at once. It gives
// nothing that lacks what is required.
func (e *Engine) takeWarm(ctx context.Context, of shape, plan driver.Plan, require []string) (*readyMachine, *pool) {
	fitting := e.poolsOf(of)
	for _, p := range fitting {
		if e.beforeTake != nil {
			e.beforeTake()
		}
		if w := p.take(require); w != nil {
			return w, p
		}
	}
	return e.forkWarm(ctx, fitting, plan, require)
}

// forkWarm forks in one of the pools, where that can be done at once.
func (e *Engine) forkWarm(ctx context.Context, pools []*pool, plan driver.Plan, require []string) (*readyMachine, *pool) {
	if forkedPlan(plan).Meets(require) != nil {
		return nil, nil
	}
	for _, p := range pools {
		if w := p.forkNow(ctx, plan); w != nil {
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

// forkNow makes a machine with a fork for a request that found none waiting:
// that takes less than to start an interpreter. It returns nil where there is
// nothing to fork from, or no room in the pool, or the fork fails.
func (p *pool) forkNow(ctx context.Context, plan driver.Plan) *readyMachine {
	if !p.zygotes.Ready() {
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
	w, ok, err := p.fork(ctx, plan)
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
