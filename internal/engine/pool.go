package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/internal/language"
	"pinfold/internal/zygote/supervisor"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

const (
	// maxPoolSize bounds one pool.
	maxPoolSize = 10_000
	// maxPoolAge is after how long a waiting machine is replaced.
	maxPoolAge = 15 * time.Minute
	// poolCheck is how often the waiting machines are looked at.
	poolCheck = 30 * time.Second
)

// shape is what machines of a pool have in common. Limits that the engine or
// each process keeps are not part of it.
type shape struct {
	template, driver                string
	memory, processes, disk, inodes int64
	cpus                            float64
	interpreter                     warmKey // none: machines only
}

func shapeOf(template, driverName string, l sandbox.Limits) shape {
	return shape{
		template: template, driver: driverName, memory: l.MemoryBytes, processes: l.Processes,
		disk: l.DiskBytes, inodes: l.Inodes, cpus: l.CPUs,
	}
}

// pool keeps machines waiting, of one shape. Each is handed out once.
type pool struct {
	engine *Engine
	driver driver.Driver
	shape  shape

	mu           sync.Mutex
	spec         sandbox.PoolSpec
	waiting      []*readyMachine
	filling      int
	inUse        int
	hits         int64
	forked       int64
	misses       int64
	swapped      int64
	used         time.Time // when it served somebody last
	backoff      backoff
	fillingSince time.Time // since when fillers are at work and nothing has come
	closed       bool
	soon         bool // it will be filled in a moment
	fillers      sync.WaitGroup
	zygotes      *supervisor.Supervisor
	alive        context.Context //nolint:containedctx // it is the pool's life: what it makes ends with it
	quit         context.CancelFunc
	wake         chan struct{} // has look look now
}

// readyMachine is a machine that nobody has used.
type readyMachine struct {
	session     *execution.Session
	interpreter *warm.Interpreter  // nil in a pool of machines only
	forked      *supervisor.Forked // where the interpreter was forked
	made        time.Time
}

// dead says whether it can be handed out no more.
func (w *readyMachine) dead() bool {
	return w.forked != nil && w.forked.Orphaned() || w.session.Dead() || w.interpreter != nil && w.interpreter.Dead()
}

// checkPool completes and checks a pool's description.
func checkPool(p sandbox.PoolSpec) (sandbox.PoolSpec, error) {
	if p.Min == 0 {
		p.Min = sandbox.DefaultPoolMin
	}
	bad := func(field, message, hint string, fixes ...sandbox.Fix) error {
		return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: message}).WithAdvice(sandbox.Advise(hint, fixes...))
	}
	switch {
	case p.Name == "" || len(p.Name) > 40 || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return p, bad("name", "a pool's name has 1 to 40 of a-z, 0-9 and -", "choose one such as data-4g")
	case p.Min < 0 || p.Min > maxPoolSize:
		return p, bad("min", fmt.Sprintf("%d is outside 1 to %d", p.Min, maxPoolSize), "leave it out for the default, %s", sandbox.Set("min", sandbox.DefaultPoolMin))
	case p.Max < 0 || p.Max > maxPoolSize:
		return p, bad("max", fmt.Sprintf("%d is outside 0 to %d", p.Max, maxPoolSize), "leave it out for no bound of its own")
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

// SetPool adds a pool, or changes the one of that name. A change of shape makes
// all its machines anew.
func (e *Engine) SetPool(ctx context.Context, spec sandbox.PoolSpec) (sandbox.PoolInfo, error) {
	limits, err := e.options.Policy.Limits(spec.Limits, false)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	spec.Limits = limits // of what requests ask for that say nothing
	spec, err = checkPool(spec)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	d, _, err := e.planner.Plan(ctx, spec.Machine(), records.NewID(""))
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	if _, err := e.planner.Template(spec.Template); err != nil {
		return sandbox.PoolInfo{}, err
	}
	key := shapeOf(spec.Template, d.Name(), spec.Limits)
	if spec.Language != "" {
		key.interpreter = keyOf(spec.Language, spec.Warm)
	}
	e.mu.Lock()
	if e.draining {
		e.mu.Unlock()
		return sandbox.PoolInfo{}, errDraining()
	}
	old := e.pools[spec.Name]
	p := old
	if old == nil || old.shape != key {
		p = newPool(e, d, key, spec.Name)
		e.pools[spec.Name] = p
		e.background.Go(p.look)
	}
	e.mu.Unlock()
	if old != nil && old != p {
		e.background.Go(func() { old.close() })
	}
	p.mu.Lock()
	p.spec = spec
	p.backoff.forget() // whoever sets a pool may have mended what was wrong
	p.mu.Unlock()
	p.fill()
	return p.info(), nil
}

func newPool(e *Engine, d driver.Driver, of shape, name string) *pool {
	p := &pool{engine: e, driver: d, shape: of, wake: make(chan struct{}, 1), used: time.Now()}
	p.alive, p.quit = context.WithCancel(context.Background())
	p.zygotes = supervisor.New(supervisor.Options{
		Start: func(ctx context.Context) (driver.Zygote, error) { return e.startZygote(ctx, d, p.description()) },
		Lost:  p.orphaned, Go: e.background.Go, Log: e.log.With("pool", name),
	})
	return p
}

// RemovePool ends a pool. What it has handed out lives on.
func (e *Engine) RemovePool(_ context.Context, name string) error {
	e.mu.Lock()
	p := e.pools[name]
	delete(e.pools, name)
	e.mu.Unlock()
	if p == nil {
		return (&sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such pool"}).WithAdvice(sandbox.Advise("list them with %s", sandbox.Call(sandbox.CallListPools)))
	}
	p.close()
	return nil
}

// Pools describes all pools, by name.
func (e *Engine) Pools() []sandbox.PoolInfo {
	e.mu.Lock()
	all := make([]*pool, 0, len(e.pools))
	for _, p := range e.pools {
		all = append(all, p)
	}
	e.mu.Unlock()
	infos := make([]sandbox.PoolInfo, len(all))
	for i, p := range all {
		infos[i] = p.info()
	}
	slices.SortFunc(infos, func(a, b sandbox.PoolInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

func (p *pool) info() sandbox.PoolInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	available := 0
	for _, w := range p.waiting {
		if !w.dead() {
			available++
		}
	}
	info := sandbox.PoolInfo{
		PoolSpec: p.spec, Available: available, Filling: p.filling, InUse: p.inUse,
		Total: len(p.waiting) + p.filling + p.inUse, Hits: p.hits, Forked: p.forked, Misses: p.misses, Replaced: p.swapped,
	}
	info.Error, info.RetryAt = p.backoff.shown()
	if info.Error == nil && available == 0 && p.fillsSlowly() && p.spec.Language != "" {
		info.Error = &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "warm", Hint: "import the modules in a run to see what they do",
			Message: fmt.Sprintf("the modules have been loading for more than %v", warmTimeout),
		}
	}
	if p.spec.Language != "" {
		info.Interpreters, info.Why = p.origin()
	}
	return info
}

// origin says how the pool's interpreters come to be, and why they are not forked.
func (p *pool) origin() (interpreters, why string) {
	if err := p.zygotes.Unfit(); err != nil {
		return "started", err.Error()
	}
	if p.zygotes.Ready() {
		return "forked", ""
	}
	return "", ""
}

// description is what the pool was set to last.
func (p *pool) description() sandbox.PoolSpec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec
}

// take hands out the machine that has waited longest, of those that still live and
// enforce what is required.
func (p *pool) take(require []string) *readyMachine {
	p.mu.Lock()
	var taken *readyMachine
	var dead []*execution.Session
	for i := 0; i < len(p.waiting) && taken == nil; {
		w := p.waiting[i]
		if w.session.Plan.Meets(require) != nil {
			i++
			continue
		}
		p.waiting = slices.Delete(p.waiting, i, i+1)
		if w.dead() {
			dead = append(dead, w.session)
			p.swapped++
			continue
		}
		taken = w
	}
	if taken != nil {
		failpoint.Hit("pool.taken")
		p.hits++
		p.inUse++
		p.used = time.Now()
	}
	enough := len(p.waiting) > p.spec.Min/2
	p.mu.Unlock()
	p.discard(dead)
	if enough {
		p.fillSoon()
	} else {
		p.fill()
	}
	return taken
}

// returned says that a machine that was handed out has ended.
func (p *pool) returned() {
	p.mu.Lock()
	p.inUse--
	p.mu.Unlock()
	p.fill()
}

// sleep says whether the pool still exists afterwards.
func (p *pool) sleep(d time.Duration) bool {
	select {
	case <-p.alive.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// look replaces machines that have died or grown old, for as long as the pool
// exists.
func (p *pool) look() {
	for {
		select {
		case <-p.alive.Done():
			return
		case <-p.wake:
		case <-time.After(poolCheck):
		}
		p.mu.Lock()
		var bad []*execution.Session
		p.waiting = slices.DeleteFunc(p.waiting, func(w *readyMachine) bool {
			drop := w.dead() || time.Since(w.made) > maxPoolAge
			if drop {
				bad = append(bad, w.session)
				p.swapped++
			}
			return drop
		})
		p.mu.Unlock()
		p.discard(bad)
		p.fill()
	}
}

// discard destroys machines that nobody has used.
func (p *pool) discard(sessions []*execution.Session) {
	for _, s := range sessions {
		p.engine.background.Go(func() {
			if err := s.Close(context.Background()); err != nil {
				p.engine.log.Error("cannot destroy a machine of a pool", "pool", p.spec.Name, "error", err)
			}
		})
	}
}

// close ends the pool and destroys what waits in it.
func (p *pool) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.backoff.forget()
	p.quit()
	left := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	p.fillers.Wait()
	for _, w := range left {
		if err := w.session.Close(context.Background()); err != nil {
			p.engine.log.Error("cannot destroy a machine of a pool", "pool", p.spec.Name, "error", err)
		}
	}
	p.zygotes.Close()
}
