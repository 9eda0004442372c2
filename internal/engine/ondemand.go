package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Pools that are made because a request asked for modules.
const (
	maxOnDemand   = 8
	onDemandMin   = 2
	onDemandIdle  = 10 * time.Minute
	onDemandCheck = time.Minute
)

const (
	// warmTimeout bounds how long a request waits for the modules that it asks for to
	// be loaded. It would have to load them itself otherwise.
	warmTimeout = 30 * time.Second
	warmPoll    = 5 * time.Millisecond
)

// onDemand is one of the places for pools that requests ask for. The engine's lock
// guards it.
type onDemand struct {
	tenant string        // who asked first; others use the pool as well
	making bool          // the pool is about to be there
	taken  chan struct{} // closed when the place is given to somebody else
}

// keepWarm begins to keep interpreters with the modules that a request asked
// for, so that the next one finds one.
func (e *Engine) keepWarm(tenant string, spec sandbox.Spec, of shape) {
	if len(e.poolsOf(of)) > 0 { // somebody has set one, and its size
		return
	}
	name := onDemandName(of)
	a := e.reserve(name, tenant)
	if a == nil {
		return
	}
	limits := spec.Limits
	e.background.Go(func() {
		p := sandbox.PoolSpec{
			Name: name, Template: spec.Template, Driver: spec.Driver, Language: of.interpreter.language, Warm: spec.Warm, Min: onDemandMin,
			Limits: sandbox.Limits{
				MemoryBytes: limits.MemoryBytes, CPUs: limits.CPUs, Processes: limits.Processes,
				DiskBytes: limits.DiskBytes, Inodes: limits.Inodes,
			},
		}
		_, err := e.SetPool(context.Background(), p)
		e.mu.Lock()
		a.making = false
		e.mu.Unlock()
		if err != nil {
			e.log.Warn("cannot keep interpreters warm", "modules", of.interpreter.modules, "error", err)
			e.release(name, a)
			return
		}
		e.dropWhenIdle(name, a)
	})
}

// onDemandName names the pool for such requests. Two shapes have two pools: a name
// that they shared would keep one of them waiting for a pool that never comes.
func onDemandName(of shape) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v", of))
	return "asked-" + hex.EncodeToString(sum[:6])
}

// reserve takes one of the places for a tenant. It returns nil when there is
// none for it, or when the pool is there or being made.
func (e *Engine) reserve(name, tenant string) *onDemand {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.onDemand[name] != nil || len(e.onDemand) >= maxOnDemand && !e.makeRoom(tenant) {
		return nil
	}
	a := &onDemand{tenant: tenant, making: true, taken: make(chan struct{})}
	e.onDemand[name] = a
	return a
}

// makeRoom takes the place of a pool that cannot be filled. Or else it takes one
// from the tenant that has the most, if it keeps no fewer
// than this one then has: of its pools the one that served nobody for the
// longest time. So one tenant may have all places while nobody else asks, and two
// that both ask end with half of them each. The lock is held.
func (e *Engine) makeRoom(tenant string) bool {
	for name, a := range e.onDemand {
		if p := e.pools[name]; p != nil && !a.making && p.failing() {
			e.giveUp(name, a)
			return true
		}
	}
	held := map[string]int{}
	for _, a := range e.onDemand {
		held[a.tenant]++
	}
	most := 0
	for _, n := range held {
		most = max(most, n)
	}
	if most <= held[tenant]+1 {
		return false
	}
	var name string
	var oldest time.Time
	for n, a := range e.onDemand {
		p := e.pools[n]
		if held[a.tenant] < most || a.making || p == nil {
			continue
		}
		if used := p.lastUse(); name == "" || used.Before(oldest) {
			name, oldest = n, used
		}
	}
	if name == "" {
		return false
	}
	e.giveUp(name, e.onDemand[name])
	return true
}

// giveUp takes a pool that was asked for out of the engine. The lock is held.
func (e *Engine) giveUp(name string, a *onDemand) {
	delete(e.onDemand, name)
	close(a.taken)
	if p := e.pools[name]; p != nil {
		delete(e.pools, name)
		e.background.Go(p.close)
	}
}

// release gives up a place, unless somebody else has it by now.
func (e *Engine) release(name string, a *onDemand) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.onDemand[name] == a {
		e.giveUp(name, a)
	}
}

// dropWhenIdle removes a pool that was made for a request when nobody has used
// it for long, or when it cannot be filled.
func (e *Engine) dropWhenIdle(name string, a *onDemand) {
	ticker := time.NewTicker(onDemandCheck)
	defer ticker.Stop()
	for {
		select {
		case <-e.quit:
			return
		case <-a.taken:
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		p := e.pools[name]
		e.mu.Unlock()
		if p == nil || p.idle() {
			e.release(name, a)
			return
		}
	}
}

// idle says whether nobody would miss the pool.
func (p *pool) idle() bool {
	return time.Since(p.lastUse()) > onDemandIdle || p.failing()
}

// failing says whether nothing can be made for the pool.
func (p *pool) failing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backoff.failure != nil && len(p.waiting) == 0
}

// lastUse is when the pool served somebody last, or was made.
func (p *pool) lastUse() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// awaitWarm waits for a pool that is being made, or whose zygote is loading, and
// takes what the request asked for there. It gives up where nothing comes.
func (e *Engine) awaitWarm(ctx context.Context, plan driver.Plan, of shape, require []string) (*readyMachine, *pool) {
	name := onDemandName(of)
	for until := time.Now().Add(warmTimeout); time.Now().Before(until); {
		pools := e.poolsOf(of)
		hope := e.beingMade(name)
		for _, p := range pools {
			if w := p.take(require); w != nil {
				return w, p
			}
			hope = p.expectsMachine() || hope
		}
		if w, p := e.forkWarm(ctx, pools, plan, require); w != nil {
			return w, p
		}
		if !hope {
			break
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(warmPoll):
		}
	}
	return nil, nil
}

// beingMade says whether a pool that a request asked for is about to be there.
func (e *Engine) beingMade(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.onDemand[name]
	return a != nil && a.making
}

// expectsMachine says whether something is being made for the pool and may soon be there.
func (p *pool) expectsMachine() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backoff.failure == nil && !p.closed && p.filling > 0 && !p.fillsSlowly()
}

// fillsSlowly says whether requests have waited long enough for what is being made: those
// that come now need not wait as well. The lock is held.
func (p *pool) fillsSlowly() bool { return p.filling > 0 && time.Since(p.fillingSince) > warmTimeout }
