package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

const (
	// maxPoolSize bounds one pool.
	maxPoolSize = 10_000
	// maxPoolAge is after how long a waiting machine is replaced.
	maxPoolAge = 15 * time.Minute
	// poolCheck is how often the waiting machines are looked at.
	poolCheck = 30 * time.Second
	// fillersAtOnce is how many machines one pool makes at a time.
	fillersAtOnce = 2
	// fillPause follows a machine that could not be made; it doubles.
	fillPause    = 100 * time.Millisecond
	maxFillPause = 30 * time.Second
	// givePlace is how long a filler waits for requests that are making
	// machines themselves.
	givePlace = 2 * time.Millisecond
	// fillDelay is how long a pool that holds more than half of what it should
	// waits before what was taken is made again.
	fillDelay = 15 * time.Millisecond
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

	mu      sync.Mutex
	spec    sandbox.PoolSpec
	waiting []*waiting
	filling int
	inUse   int
	hits    int64
	misses  int64
	swapped int64
	failure *sandbox.Error
	pause   time.Duration
	closed  bool
	soon    bool // it will be filled in a moment
	fillers sync.WaitGroup
	nursery *nursery
	quit    chan struct{}
}

// waiting is a machine that nobody has used.
type waiting struct {
	session     *session
	interpreter *interpreter // nil in a pool of machines only
	made        time.Time
}

// dead says whether it can be handed out no more.
func (w *waiting) dead() bool {
	return w.session.dead() || w.interpreter != nil && w.interpreter.dead()
}

// checkPool completes and checks a pool's description.
func checkPool(p sandbox.PoolSpec) (sandbox.PoolSpec, error) {
	bad := func(field, message string) error {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: message}
	}
	switch {
	case p.Name == "" || len(p.Name) > 40 || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return p, bad("name", "a pool's name has 1 to 40 of a-z, 0-9 and -")
	case p.Min < 0 || p.Min > maxPoolSize:
		return p, bad("min", fmt.Sprintf("%d is outside 0 to %d", p.Min, maxPoolSize))
	case p.Max < 0 || p.Max > maxPoolSize || p.Max != 0 && p.Max < p.Min:
		return p, bad("max", fmt.Sprintf("%d is not 0, or from min to %d", p.Max, maxPoolSize))
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
	limits, err := e.options.Policy.limits(spec.Limits, false)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	spec.Limits = limits // of what requests ask for that say nothing
	spec, err = checkPool(spec)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	d, _, err := e.choose(ctx, spec.Driver)
	if err != nil {
		return sandbox.PoolInfo{}, err
	}
	if _, err := e.options.Template(spec.Template); err != nil {
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
		p = &pool{engine: e, driver: d, shape: key, quit: make(chan struct{}), pause: fillPause, nursery: newNursery(e, d)}
		e.pools[spec.Name] = p
		e.background.Go(p.look)
	}
	e.mu.Unlock()
	if old != nil && old != p {
		e.background.Go(func() { old.close() })
	}
	p.mu.Lock()
	p.spec = spec
	p.mu.Unlock()
	p.fill()
	return p.info(), nil
}

// RemovePool ends a pool. What it has handed out lives on.
func (e *Engine) RemovePool(_ context.Context, name string) error {
	e.mu.Lock()
	p := e.pools[name]
	delete(e.pools, name)
	e.mu.Unlock()
	if p == nil {
		return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such pool", Hint: "pinfold pool ls lists them"}
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
		Total: len(p.waiting) + p.filling + p.inUse, Hits: p.hits, Misses: p.misses, Replaced: p.swapped, Error: p.failure,
	}
	if p.spec.Language != "" {
		info.Interpreters, info.Why = p.nursery.how()
	}
	return info
}

// take hands out the machine that has waited longest, if it still lives.
func (p *pool) take() *waiting {
	p.mu.Lock()
	var taken *waiting
	var dead []*session
	for len(p.waiting) > 0 && taken == nil {
		w := p.waiting[0]
		p.waiting = p.waiting[1:]
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

// fillSoon fills the pool when the request that has just taken something has
// had the machine for itself for a moment.
func (p *pool) fillSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.soon || p.closed {
		return
	}
	p.soon = true
	time.AfterFunc(fillDelay, func() {
		p.mu.Lock()
		p.soon = false
		p.mu.Unlock()
		p.fill()
	})
}

// fill starts as many fillers as are needed.
func (p *pool) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.filling < fillersAtOnce && p.lacking() > p.filling {
		p.filling++
		p.fillers.Go(p.fillOne)
	}
}

// lacking is how many machines should be made. The lock is held.
func (p *pool) lacking() int {
	n := p.spec.Min - len(p.waiting)
	if p.spec.Max > 0 {
		n = min(n, p.spec.Max-len(p.waiting)-p.inUse)
	}
	return n
}

// fillOne makes machines until the pool is full. Requests that make machines of
// their own go before it.
func (p *pool) fillOne() {
	for again := true; again; {
		for range 5 {
			if p.engine.making.Load() == 0 || !p.sleep(givePlace) {
				break
			}
		}
		w, err := p.make()
		failpoint.Hit("pool.made")
		again = p.filled(w, err)
	}
}

// make makes what the pool keeps. On error nothing is left.
func (p *pool) make() (*waiting, error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadPatience+handshakePatience)
	defer cancel()
	p.mu.Lock()
	spec := p.spec
	p.mu.Unlock()
	report, err := p.driver.Probe(ctx)
	if err != nil {
		return nil, err
	}
	c := sandbox.Create{Template: spec.Template, Driver: spec.Driver, Limits: spec.Limits}
	plan, err := driver.MakePlan(c.Plannable(), report, machineID(newID("run_")))
	if err != nil {
		return nil, err
	}
	if spec.Language != "" {
		if w, ok, err := p.nursery.fork(ctx, plan, spec); ok {
			return w, err
		}
	}
	s, err := openSession(ctx, p.driver, plan)
	if err != nil {
		return nil, err
	}
	w := &waiting{session: s, made: time.Now()}
	if spec.Language == "" {
		return w, nil
	}
	if w.interpreter, err = p.engine.interpreterFor(ctx, s, spec); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return w, nil
}

// interpreterFor starts the interpreter of a pool in a machine of its.
func (e *Engine) interpreterFor(ctx context.Context, s *session, spec sandbox.PoolSpec) (*interpreter, error) {
	lang, err := language.Find(spec.Language)
	if err != nil {
		return nil, err
	}
	template, err := e.options.Template(spec.Template)
	if err != nil {
		return nil, err
	}
	lookup := func(candidates []string) (string, bool) { return template.Lookup(e.options.Host, candidates) }
	wait, _, err := lang.WaitStep(spec.Warm, spec.Limits, lookup)
	if err != nil {
		return nil, err
	}
	return startInterpreter(ctx, s, wait, spec.Limits.WithDefaults())
}

// filled takes in what a filler made, and says whether it shall go on.
func (p *pool) filled(w *waiting, err error) (again bool) {
	p.mu.Lock()
	if err != nil {
		p.failure = sandbox.AsError(err)
		pause := p.pause
		p.pause = min(2*p.pause, maxFillPause)
		p.mu.Unlock()
		p.engine.log.Warn("cannot fill a pool", "pool", p.spec.Name, "error", err)
		p.sleep(pause)
		p.mu.Lock()
	} else {
		p.failure, p.pause = nil, fillPause
		if p.closed || p.lacking() <= 0 {
			p.mu.Unlock()
			p.discard([]*session{w.session})
			p.mu.Lock()
		} else {
			p.waiting = append(p.waiting, w)
		}
	}
	defer p.mu.Unlock()
	if again = !p.closed && p.lacking() >= p.filling; !again {
		p.filling--
	}
	return again
}

// sleep says whether the pool still exists afterwards.
func (p *pool) sleep(d time.Duration) bool {
	select {
	case <-p.quit:
		return false
	case <-time.After(d):
		return true
	}
}

// look replaces machines that have died or grown old, for as long as the pool
// exists.
func (p *pool) look() {
	for p.sleep(poolCheck) {
		p.mu.Lock()
		var bad []*session
		p.waiting = slices.DeleteFunc(p.waiting, func(w *waiting) bool {
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
func (p *pool) discard(sessions []*session) {
	for _, s := range sessions {
		p.engine.background.Go(func() {
			if err := s.close(context.Background()); err != nil {
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
	close(p.quit)
	left := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	p.fillers.Wait()
	for _, w := range left {
		if err := w.session.close(context.Background()); err != nil {
			p.engine.log.Error("cannot destroy a machine of a pool", "pool", p.spec.Name, "error", err)
		}
	}
	p.nursery.close()
}

// dead says whether the machine has ended by itself.
func (s *session) dead() bool {
	select {
	case <-s.machine.Dead():
		return true
	default:
		return s.guest.Err() != nil
	}
}
