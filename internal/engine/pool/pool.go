package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/failpoint"
	"pinfold/internal/image"
	"pinfold/internal/zygote/supervisor"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

const (
	// maxSize bounds one pool.
	maxSize = 10_000
	// maxAge is after how long a waiting machine is replaced.
	maxAge = 15 * time.Minute
	// checkInterval is how often the waiting machines are looked at.
	checkInterval = 30 * time.Second
)

// shape is what machines of a pool have in common. Limits that a watch or
// each process keeps are not part of it.
type shape struct {
	template, driver                string // the template's ID
	memory, processes, disk, inodes int64
	cpus                            float64
	interpreter                     interpreterKey // none: machines only
}

func shapeOf(template image.Template, driverName string, l sandbox.Limits) shape {
	return shape{
		template: template.ID, driver: driverName, memory: l.MemoryBytes, processes: l.Processes,
		disk: l.DiskBytes, inodes: l.Inodes, cpus: l.CPUs,
	}
}

// pool keeps machines waiting, of one shape. Each is handed out once.
type pool struct {
	set    *Pools
	driver driver.Driver
	shape  shape

	mu           sync.Mutex
	spec         sandbox.PoolSpec
	waiting      []*ready
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
	delayed      bool // a call of fill is to come: see fillLater
	fillers      sync.WaitGroup
	zygotes      *supervisor.Supervisor
	alive        context.Context //nolint:containedctx // it is the pool's life: what it makes ends with it
	quit         context.CancelFunc
	check        chan struct{} // a send has maintain check what waits now
}

// ready is a machine that nobody has used.
type ready struct {
	session     *execution.Session
	interpreter *warm.Interpreter  // nil in a pool of machines only
	forked      *supervisor.Forked // where the interpreter was forked
	made        time.Time
}

// dead says whether it can be handed out no more.
func (w *ready) dead() bool {
	return w.forked != nil && w.forked.Orphaned() || w.session.Dead() || w.interpreter != nil && w.interpreter.Dead()
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

// take takes out the machine that has waited longest, of those that still live and serve
// the request.
func (p *pool) take(r Request) *ready {
	p.mu.Lock()
	var taken *ready
	var dead []*execution.Session
	for i := 0; i < len(p.waiting) && taken == nil; {
		w := p.waiting[i]
		if !w.serves(r) {
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
		p.fillLater()
	} else {
		p.fill()
	}
	return taken
}

// unserved says that a machine was taken, or made at once, for a request and serves nobody.
func (p *pool) unserved(made bool) {
	p.mu.Lock()
	if made {
		p.forked--
	} else {
		p.hits--
		p.swapped++
	}
	p.mu.Unlock()
	p.returned()
}

// returned says that a machine that was handed out has ended.
func (p *pool) returned() {
	p.mu.Lock()
	p.inUse--
	p.mu.Unlock()
	p.fill()
}

// newPool returns a pool that is empty and has no description.
func newPool(s *Pools, d driver.Driver, of shape, name string) *pool {
	p := &pool{set: s, driver: d, shape: of, check: make(chan struct{}, 1), used: time.Now()}
	p.alive, p.quit = context.WithCancel(context.Background())
	p.zygotes = supervisor.New(supervisor.Options{
		Start: func(ctx context.Context) (driver.Zygote, error) { return s.startZygote(ctx, d, p.description()) },
		Lost:  p.orphaned, Go: s.background.Go, Log: s.log.With("pool", name),
	})
	return p
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

// maintain replaces machines that have died or grown old, for as long as the pool
// exists.
func (p *pool) maintain() {
	for {
		select {
		case <-p.alive.Done():
			return
		case <-p.check:
		case <-time.After(checkInterval):
		}
		template, err := p.set.planner.Shown(p.alive, p.driver, p.description().Template)
		removed := err != nil && sandbox.AsError(err).Code == sandbox.CodeTemplateUnknown
		p.mu.Lock()
		if removed {
			p.failed(err)
		}
		var bad []*execution.Session
		p.waiting = slices.DeleteFunc(p.waiting, func(w *ready) bool {
			drop := removed || w.dead() || time.Since(w.made) > maxAge
			if drop {
				bad = append(bad, w.session)
				p.swapped++
			}
			return drop
		})
		p.mu.Unlock()
		p.discard(bad)
		if err == nil && template.ID != p.shape.template { // its name stands for another image
			p.set.background.Go(func() { _, _ = p.set.Set(context.Background(), p.description()) })
		}
		p.fill()
	}
}

// discard destroys machines that nobody has used.
func (p *pool) discard(sessions []*execution.Session) {
	for _, s := range sessions {
		p.set.background.Go(func() {
			if err := s.Close(context.Background()); err != nil {
				p.set.log.Error("cannot destroy a machine of a pool", "pool", p.description().Name, "error", err)
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
			p.set.log.Error("cannot destroy a machine of a pool", "pool", p.description().Name, "error", err)
		}
	}
	p.zygotes.Close()
}
