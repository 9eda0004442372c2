// Package pool keeps machines that wait for requests, each of a declared shape, made and
// (but for those of forks) greeted, with or without an interpreter that has loaded its
// modules; and it gives requests their machines, waiting ones and new ones. What is done
// with a machine, others decide; who is let in, package admission.
package pool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"pinfold/internal/egress"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/planner"
	"pinfold/internal/engine/records"
	"pinfold/internal/language"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// Options are what pools need.
type Options struct {
	Planner *planner.Planner
	Policy  admission.Policy
	Secrets secret.Finder // nil: there are none
	Log     *slog.Logger
}

// Pools are all pools of a server. They are safe for concurrent use.
type Pools struct {
	planner *planner.Planner
	policy  admission.Policy
	log     *slog.Logger
	egress  *egress.Host
	secrets secret.Finder

	// BeforeTake is of tests: called between choosing a pool and taking from it. nil
	// or set before the first request.
	BeforeTake func()

	making      atomic.Int64 // requests that make a machine right now
	undestroyed atomic.Int64
	background  sync.WaitGroup // everything that goes on by itself
	quit        chan struct{}

	mu       sync.Mutex
	pools    map[string]*pool
	onDemand map[string]*onDemand // by the pool's name
	drained  error                // why no pool may be set any more
}

// New returns an empty set of pools.
func New(o Options) *Pools {
	way := egress.NewHost(0)
	way.Own = o.Policy.Network.Own
	return &Pools{
		planner: o.Planner, policy: o.Policy, log: o.Log, egress: way, secrets: o.Secrets, quit: make(chan struct{}),
		pools: map[string]*pool{}, onDemand: map[string]*onDemand{},
	}
}

// Set adds a pool, or changes the one of that name. A change of shape makes
// all its machines anew.
func (s *Pools) Set(ctx context.Context, spec sandbox.PoolSpec) (sandbox.PoolInfo, error) {
	limits, err := s.policy.Limits(spec.Limits, false)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	spec.Limits = limits // of what requests ask for that say nothing
	spec, err = check(spec)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	d, plan, err := s.planner.Plan(ctx, spec.Machine(), records.NewID(""))
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	of := shapeOf(plan.Template, d.Name(), spec.Limits)
	if spec.Language != "" {
		of.interpreter = keyOf(spec.Language, spec.Warm)
	}
	s.mu.Lock()
	if s.drained != nil {
		s.mu.Unlock()
		return sandbox.PoolInfo{}, s.drained
	}
	old := s.pools[spec.Name]
	p := old
	if old == nil || old.shape != of {
		p = newPool(s, d, of, spec.Name)
		s.pools[spec.Name] = p
		s.background.Go(p.maintain)
	}
	s.mu.Unlock()
	if old != nil && old != p {
		s.background.Go(func() { old.close() })
	}
	p.mu.Lock()
	p.spec = spec
	p.backoff.forget() // whoever sets a pool may have mended what was wrong
	p.mu.Unlock()
	p.fill()
	return p.info(), nil
}

// Remove ends a pool. What it has handed out lives on.
func (s *Pools) Remove(name string) error {
	s.mu.Lock()
	p := s.pools[name]
	delete(s.pools, name)
	s.mu.Unlock()
	if p == nil {
		return (&sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such pool"}).WithAdvice(sandbox.Advise("list them with %s", sandbox.Call(sandbox.CallListPools)))
	}
	p.close()
	return nil
}

// List describes all pools, by name.
func (s *Pools) List() []sandbox.PoolInfo {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.pools))
	s.mu.Unlock()
	infos := make([]sandbox.PoolInfo, len(all))
	for i, p := range all {
		infos[i] = p.info()
	}
	slices.SortFunc(infos, func(a, b sandbox.PoolInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// Drain begins to end all pools, and lets nobody set another one: that is refused with
// the error.
func (s *Pools) Drain(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = why
	for _, p := range s.pools {
		s.background.Go(p.close)
	}
	clear(s.pools)
}

// Close waits until nothing goes on any more. It follows Drain, and the end of all
// that was handed out.
func (s *Pools) Close() {
	close(s.quit)
	s.background.Wait()
}

// check completes and checks a pool's description.
func check(p sandbox.PoolSpec) (sandbox.PoolSpec, error) {
	p.Min = cmp.Or(p.Min, sandbox.DefaultPoolMin)
	bad := func(field, message, hint string, fixes ...sandbox.Fix) error {
		return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: message}).WithAdvice(sandbox.Advise(hint, fixes...))
	}
	switch {
	case p.Name == "" || len(p.Name) > 40 || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return p, bad("name", "a pool's name has 1 to 40 of a-z, 0-9 and -", "choose one such as data-4g")
	case p.Min < 0 || p.Min > maxSize:
		return p, bad("min", fmt.Sprintf("%d is outside 1 to %d", p.Min, maxSize), "leave it out for the default, %s", sandbox.Set("min", sandbox.DefaultPoolMin))
	case p.Max < 0 || p.Max > maxSize:
		return p, bad("max", fmt.Sprintf("%d is outside 0 to %d", p.Max, maxSize), "leave it out for no bound of its own")
	case p.Max != 0 && p.Max < p.Min:
		return p, bad("max", fmt.Sprintf("%d is less than the %d that are to be kept waiting", p.Max, p.Min), "write %s or more, or leave it out for no bound of its own", sandbox.Set("max", p.Min))
	}
	c := sandbox.Create{Template: p.Template, Driver: p.Driver, Limits: p.Limits}
	if err := c.Validate(); err != nil {
		return p, err
	}
	var err error
	if p.Language, err = language.CheckWaiting(p.Language, p.Warm); err != nil {
		return p, err
	}
	s := c.WithDefaults()
	p.Template, p.Driver, p.Limits = s.Template, s.Driver, s.Limits
	return p, nil
}
