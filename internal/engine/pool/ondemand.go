package pool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"pinfold/sandbox"
)

// On-demand pools: made because a request asked for modules.
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

// onDemand is one of the places for on-demand pools. The lock of Pools
// guards it.
type onDemand struct {
	tenant string        // who asked first; others use the pool as well
	making bool          // the pool is about to be there
	taken  chan struct{} // closed when the place is given to somebody else
}

// keep begins to keep interpreters with the modules that a request asked for, so that
// the next one finds one.
func (s *Pools) keep(r Request, of shape) {
	if len(s.poolsOf(of)) > 0 { // somebody has set one, and its size
		return
	}
	name := onDemandName(of)
	a := s.reserve(name, r.Tenant)
	if a == nil {
		return
	}
	spec, limits, driver := r.Spec, r.Spec.Limits, r.Spec.Driver
	if spec.Isolation != "" { // a pool that names no driver is of the usual one
		driver = r.Driver.Name()
	}
	s.background.Go(func() {
		p := sandbox.PoolSpec{
			Name: name, Template: spec.Template, Driver: driver, Language: of.interpreter.language, Warm: r.Modules, Min: onDemandMin,
			Limits: sandbox.Limits{
				MemoryBytes: limits.MemoryBytes, CPUs: limits.CPUs, Processes: limits.Processes,
				DiskBytes: limits.DiskBytes, Inodes: limits.Inodes,
			},
		}
		_, err := s.Set(context.Background(), p)
		s.mu.Lock()
		a.making = false
		s.mu.Unlock()
		if err != nil {
			s.log.Warn("cannot keep interpreters warm", "modules", of.interpreter.modules, "error", err)
			s.release(name, a)
			return
		}
		s.dropWhenIdle(name, a)
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
func (s *Pools) reserve(name, tenant string) *onDemand {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onDemand[name] != nil || len(s.onDemand) >= maxOnDemand && !s.makeRoom(tenant) {
		return nil
	}
	a := &onDemand{tenant: tenant, making: true, taken: make(chan struct{})}
	s.onDemand[name] = a
	return a
}

// makeRoom takes the place of a pool that cannot be filled. Or else it takes one
// from the tenant that has the most, if it keeps no fewer
// than this one then has: of its pools the one that served nobody for the
// longest time. So one tenant may have all places while nobody else asks, and two
// that both ask end with half of them each. The lock is held.
func (s *Pools) makeRoom(tenant string) bool {
	for name, a := range s.onDemand {
		if p := s.pools[name]; p != nil && !a.making && p.failing() {
			s.giveUp(name, a)
			return true
		}
	}
	held := map[string]int{}
	for _, a := range s.onDemand {
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
	for n, a := range s.onDemand {
		p := s.pools[n]
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
	s.giveUp(name, s.onDemand[name])
	return true
}

// giveUp takes a pool that was asked for out of the set. The lock is held.
func (s *Pools) giveUp(name string, a *onDemand) {
	delete(s.onDemand, name)
	close(a.taken)
	if p := s.pools[name]; p != nil {
		delete(s.pools, name)
		s.background.Go(p.close)
	}
}

// release gives up a place, unless somebody else has it by now.
func (s *Pools) release(name string, a *onDemand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onDemand[name] == a {
		s.giveUp(name, a)
	}
}

// dropWhenIdle removes a pool that was made for a request when nobody has used
// it for long, or when it cannot be filled.
func (s *Pools) dropWhenIdle(name string, a *onDemand) {
	ticker := time.NewTicker(onDemandCheck)
	defer ticker.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-a.taken:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		p := s.pools[name]
		s.mu.Unlock()
		if p == nil || p.idle() {
			s.release(name, a)
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

// await waits for a pool that is being made, or whose zygote is loading, and
// takes what the request asked for there. It gives up where nothing comes.
func (s *Pools) await(ctx context.Context, of shape, r Request) *Machine {
	name := onDemandName(of)
	for until := time.Now().Add(warmTimeout); time.Now().Before(until); {
		hope := s.beingMade(name) // asked before the look that it is about: what comes in between is found
		pools := s.poolsOf(of)
		for _, p := range pools {
			hope = p.expectsMachine() || hope
			if w := p.take(r); w != nil {
				return p.handOut(ctx, w, r)
			}
		}
		if m := s.fork(ctx, pools, r); m != nil {
			return m
		}
		if !hope {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(warmPoll):
		}
	}
	return nil
}

// beingMade says whether a pool that a request asked for is about to be there.
func (s *Pools) beingMade(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.onDemand[name]
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
