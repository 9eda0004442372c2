package engine

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

const (
	// maxParentAge is after how long a parent is replaced, so that a change of what
	// is installed on the host is seen.
	maxParentAge = time.Hour
	// maxParentGrowth is how much memory a parent may gain, which it has no
	// reason to, before it is replaced.
	maxParentGrowth = 64 << 20
	// weighEvery is how often a parent's memory is read.
	weighEvery = time.Second
	// warmPatience bounds how long a request waits for the modules that it asks for to
	// be loaded. It would have to load them itself otherwise.
	warmPatience = 30 * time.Second
	warmPoll     = 5 * time.Millisecond
)

// nursery has the parent from which a pool's interpreters are forked. A parent
// that is given up lives on until the last machine with a fork of it is gone.
type nursery struct {
	engine *Engine
	driver driver.Driver

	turns chan struct{} // held by those who are forking

	mu      sync.Mutex
	current *parent
	loading chan struct{} // closed when the start of a parent that is under way is over
	unfit   error         // why interpreters are started instead
}

func newNursery(e *Engine, d driver.Driver) *nursery {
	return &nursery{engine: e, driver: d, turns: make(chan struct{}, 2*runtime.NumCPU())}
}

// parent is one parent. The nursery's lock guards it.
type parent struct {
	driver.Parent
	made     time.Time
	memory   int64 // when it had loaded everything
	weighed  time.Time
	machines int
	retired  bool
}

// wrong says whether the parent should make no more forks. The nursery's lock
// is held.
func (p *parent) wrong() bool {
	select {
	case <-p.Dead():
		return true
	default:
	}
	if time.Since(p.weighed) < weighEvery {
		return false
	}
	p.weighed = time.Now()
	return time.Since(p.made) > maxParentAge || p.Usage().MemoryBytes > p.memory+maxParentGrowth
}

// fork makes a machine with a fork in it. ok is false when the pool's
// interpreters cannot be forked here and must be started.
func (n *nursery) fork(ctx context.Context, plan driver.Plan, spec sandbox.PoolSpec) (w *waiting, ok bool, err error) {
	p, err := n.borrow(ctx, spec)
	if p == nil || err != nil {
		return nil, err != nil, err
	}
	m, f, err := n.inTurn(ctx, p, plan)
	if err != nil {
		if ctx.Err() == nil && sandbox.AsError(err).Code != sandbox.CodeResourceUnavailable {
			n.retire(p) // whatever was wrong, a new one is not
		}
		n.giveBack(p)
		return nil, true, err
	}
	s := &session{plan: plan, machine: m, after: sync.OnceFunc(func() { n.giveBack(p) })}
	i := newForkedInterpreter(f)
	if err := s.greet(ctx); err != nil {
		return nil, true, errors.Join(err, s.close(ctx))
	}
	return &waiting{session: s, interpreter: i, made: time.Now()}, true, nil
}

// inTurn forks. A parent makes one fork after another, so only a few are asked
// for at a time; the others wait here, where they have patience.
func (n *nursery) inTurn(ctx context.Context, p *parent, plan driver.Plan) (driver.Machine, *driver.Forked, error) {
	select {
	case n.turns <- struct{}{}:
	case <-p.Dead():
		return nil, nil, errParentEnded
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-n.turns }()
	return p.Fork(ctx, plan)
}

// borrow returns the parent, or nil when there can be none. It is to be given
// back.
func (n *nursery) borrow(ctx context.Context, spec sandbox.PoolSpec) (*parent, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if n.unfit != nil {
			return nil, nil //nolint:nilnil // said above
		}
		if n.current != nil && n.current.wrong() {
			n.retireLocked(n.current)
		}
		if n.current != nil {
			n.current.machines++
			return n.current, nil
		}
		if err := n.load(ctx, spec); err != nil {
			return nil, err
		}
	}
}

// load starts a parent, or waits for somebody who does. The lock is held, but
// not meanwhile.
func (n *nursery) load(ctx context.Context, spec sandbox.PoolSpec) error {
	if over := n.loading; over != nil {
		n.mu.Unlock()
		defer n.mu.Lock()
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	n.loading = make(chan struct{})
	n.mu.Unlock()
	p, err := n.start(ctx, spec)
	n.mu.Lock()
	close(n.loading)
	n.loading = nil
	var unfit *driver.UnfitError
	switch {
	case errors.As(err, &unfit) && unfit.Load:
		return notLoaded("", unfit.Why)
	case errors.As(err, &unfit) || errors.Is(err, errors.ErrUnsupported):
		n.unfit = err
		n.engine.log.Info("interpreters are started, not forked", "pool", spec.Name, "because", err)
		return nil
	}
	n.current = p
	return err
}

// start starts a parent.
func (n *nursery) start(ctx context.Context, spec sandbox.PoolSpec) (*parent, error) {
	forker, ok := n.driver.(driver.Forker)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	lang, err := language.Find(spec.Language)
	if err != nil {
		return nil, err
	}
	template, err := n.engine.options.Template(spec.Template)
	if err != nil {
		return nil, err
	}
	limits := spec.Limits.WithDefaults()
	lookup := func(candidates []string) (string, bool) { return template.Lookup(n.engine.options.Host, candidates) }
	step, ok, err := lang.ParentStep(spec.Warm, limits, lookup)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.ErrUnsupported
	}
	p := driver.ParentSpec{Args: step.Args, Env: step.Env, Home: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID}
	for _, f := range step.Files {
		p.Files = append(p.Files, driver.ParentFile{Path: f.Path, Content: f.Content})
	}
	for _, l := range rlimits(limits) {
		p.Limits = append(p.Limits, driver.Rlimit{Resource: l.Resource, Value: l.Value})
	}
	if p.Setup, err = json.Marshal(map[string]any{"modules": step.Modules}); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "encoding a parent's modules: %w", err)
	}
	report, err := n.driver.Probe(ctx)
	if err != nil {
		return nil, err
	}
	c := sandbox.Create{Template: spec.Template, Driver: spec.Driver, Limits: spec.Limits}
	plan, err := driver.MakePlan(c.Plannable(), report, machineID(newID("run_")))
	if err != nil {
		return nil, err
	}
	made, err := forker.NewParent(ctx, plan, p)
	if err != nil {
		return nil, err
	}
	return &parent{Parent: made, made: time.Now(), memory: made.Usage().MemoryBytes}, nil
}

// giveBack says that a machine is gone, or was not made after all.
func (n *nursery) giveBack(p *parent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.machines--
	n.sweep(p)
}

func (n *nursery) retire(p *parent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retireLocked(p)
}

func (n *nursery) retireLocked(p *parent) {
	if n.current == p {
		n.current = nil
	}
	p.retired = true
	n.sweep(p)
}

// sweep ends a parent that nobody needs. The lock is held.
func (n *nursery) sweep(p *parent) {
	if !p.retired || p.machines > 0 {
		return
	}
	p.retired = false // once
	n.engine.background.Go(func() {
		if err := p.Destroy(context.Background()); err != nil {
			n.engine.log.Error("cannot destroy a parent", "error", err)
		}
	})
}

// close gives up the parent. Machines with forks of it live on.
func (n *nursery) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		n.retireLocked(n.current)
	}
}

// ready says whether there is a parent to fork from.
func (n *nursery) ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current != nil && n.unfit == nil
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
		return w
	}
	p.returned()
	if err != nil {
		p.engine.log.Warn("cannot fork an interpreter", "pool", spec.Name, "error", err)
	}
	return nil
}

// awaitWarm waits for a pool that is being made, or whose parent is loading, and
// takes what the request asked for there. It gives up where nothing comes.
func (e *Engine) awaitWarm(ctx context.Context, plan driver.Plan, of shape) (*waiting, *pool) {
	asked := askedName(of)
	for until := time.Now().Add(warmPatience); time.Now().Before(until); {
		pools := e.poolsOf(of)
		hope := len(pools) == 0 && e.beingMade(asked)
		for _, p := range pools {
			if w := p.take(); w != nil {
				return w, p
			}
			hope = p.hopeful() || hope
		}
		if w, p := e.forkWarm(ctx, pools, plan, false); w != nil {
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
	return e.asked[name]
}

// hopeful says whether something is being made for the pool.
func (p *pool) hopeful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure == nil && !p.closed && p.filling > 0
}

// how says how the pool's interpreters come to be.
func (n *nursery) how() (interpreters, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.unfit != nil:
		return "started", n.unfit.Error()
	case n.current != nil:
		return "forked", ""
	}
	return "", ""
}
