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
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

const (
	// maxZygoteAge is after how long a zygote is replaced, so that a change of what
	// is installed on the host is seen.
	maxZygoteAge = time.Hour
	// maxZygoteGrowth is how much memory a zygote may gain, which it has no
	// reason to, before it is replaced.
	maxZygoteGrowth = 64 << 20
	// weighEvery is how often a zygote's memory is read.
	weighEvery = time.Second
)

// zygotes has the zygote (one at a time) from which a pool's interpreters are forked. A zygote
// that is given up lives on until the last machine with a fork of it is gone.
type zygotes struct {
	engine *Engine
	driver driver.Driver
	lost   func() // called when a zygote has ended by itself

	turns chan struct{} // held by those who are forking

	mu      sync.Mutex
	current *keptZygote
	loading *loading
	unfit   error // why interpreters are started instead
}

// loading is the start of a zygote that is under way.
type loading struct {
	over chan struct{}
	err  error // once it is over
}

func newZygotes(e *Engine, d driver.Driver, lost func()) *zygotes {
	return &zygotes{engine: e, driver: d, lost: lost, turns: make(chan struct{}, 2*runtime.NumCPU())}
}

// keptZygote is one of them. The lock of zygotes guards it.
type keptZygote struct {
	driver.Zygote
	made     time.Time
	memory   int64 // when it had loaded everything
	weighed  time.Time
	machines int
	retired  bool
	ended    bool // by us
}

// dead says whether it has ended, and all its forks with it.
func (p *keptZygote) dead() bool {
	select {
	case <-p.Dead():
		return true
	default:
		return false
	}
}

// wrong says whether the zygote should make no more forks. The lock of zygotes
// is held.
func (p *keptZygote) wrong() bool {
	if p.dead() {
		return true
	}
	if time.Since(p.weighed) < weighEvery {
		return false
	}
	p.weighed = time.Now()
	return time.Since(p.made) > maxZygoteAge || p.Usage().MemoryBytes > p.memory+maxZygoteGrowth
}

// fork makes a machine with a fork in it. ok is false when the pool's
// interpreters cannot be forked here and must be started.
func (n *zygotes) fork(ctx context.Context, plan driver.Plan, spec sandbox.PoolSpec) (w *readyMachine, ok bool, err error) {
	p, err := n.borrow(ctx, spec)
	if p == nil || err != nil {
		return nil, err != nil, err
	}
	m, f, err := n.inTurn(ctx, p, plan)
	if err != nil {
		if code := sandbox.AsError(err).Code; ctx.Err() == nil && code != sandbox.CodeResourceUnavailable && code != sandbox.CodeLimitInvalid {
			n.retire(p) // whatever was wrong, a new one is not
		}
		n.giveBack(p)
		return nil, true, err
	}
	s := &session{plan: forkedPlan(plan), machine: m, after: sync.OnceFunc(func() { n.giveBack(p) })}
	return &readyMachine{session: s, interpreter: newForkedInterpreter(f), zygote: p, made: time.Now()}, true, nil
}

// inTurn forks. A zygote makes one fork after another, so only a few are asked
// for at a time; the others wait here, where they have patience.
func (n *zygotes) inTurn(ctx context.Context, p *keptZygote, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	select {
	case n.turns <- struct{}{}:
	case <-p.Dead():
		return nil, nil, zygote.ErrEnded
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-n.turns }()
	return p.Fork(ctx, plan)
}

// borrow returns the zygote, or nil when there can be none. It is to be given
// back.
func (n *zygotes) borrow(ctx context.Context, spec sandbox.PoolSpec) (*keptZygote, error) {
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

// load starts a zygote, or waits for somebody who does. The lock is held, but
// not meanwhile.
func (n *zygotes) load(ctx context.Context, spec sandbox.PoolSpec) error {
	if l := n.loading; l != nil {
		n.mu.Unlock()
		defer n.mu.Lock()
		select {
		case <-l.over:
			return l.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l := &loading{over: make(chan struct{})}
	n.loading = l
	n.mu.Unlock()
	p, err := n.start(ctx, spec)
	n.mu.Lock()
	var unfit *zygote.UnfitError
	switch {
	case errors.As(err, &unfit) && unfit.Load:
		l.err = notLoaded("", unfit.Why)
	case errors.As(err, &unfit) || errors.Is(err, errors.ErrUnsupported):
		n.unfit = err
		n.engine.log.Info("interpreters are started, not forked", "pool", spec.Name, "because", err)
	case err != nil:
		l.err = err
	default:
		n.current = p
		n.engine.background.Go(func() { n.attend(p) })
	}
	n.loading = nil
	close(l.over)
	return l.err
}

// attend waits for a zygote's end, and has the pool look at what it has when
// that was not our doing.
func (n *zygotes) attend(p *keptZygote) {
	<-p.Dead()
	n.mu.Lock()
	ended := p.ended
	if !ended {
		n.retireLocked(p)
	}
	n.mu.Unlock()
	if !ended {
		n.lost()
	}
}

// start starts a zygote.
func (n *zygotes) start(ctx context.Context, spec sandbox.PoolSpec) (*keptZygote, error) {
	zygoter := n.driver.Abilities().Zygoter
	if zygoter == nil {
		return nil, &zygote.UnfitError{Why: "this driver has no forks"}
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
	step, ok, err := lang.ZygoteStep(spec.Warm, limits, n.engine.lookup(spec.Template, template))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &zygote.UnfitError{Why: "interpreters of this language cannot be forked"}
	}
	p := zygote.Spec{Args: step.Args, Env: step.Env, Home: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID}
	for _, f := range step.Files {
		p.Files = append(p.Files, zygote.GuestFile{Path: f.Path, Content: f.Content})
	}
	for _, l := range rlimits(limits) {
		p.Limits = append(p.Limits, zygote.Rlimit{Resource: l.Resource, Value: l.Value})
	}
	if p.Setup, err = json.Marshal(zygote.Modules{Modules: step.Modules}); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "encoding a zygote's modules: %w", err)
	}
	report, err := n.engine.probe(ctx, n.driver)
	if err != nil {
		return nil, err
	}
	plan, err := driver.MakePlan(spec.Machine(), report, machineID(newID("run_")))
	if err != nil {
		return nil, err
	}
	made, err := zygoter.NewZygote(ctx, plan, p)
	if err != nil {
		return nil, err
	}
	return &keptZygote{Zygote: made, made: time.Now(), memory: made.Usage().MemoryBytes}, nil
}

// giveBack says that a machine is gone, or was not made after all.
func (n *zygotes) giveBack(p *keptZygote) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.machines--
	n.sweep(p)
}

func (n *zygotes) retire(p *keptZygote) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retireLocked(p)
}

func (n *zygotes) retireLocked(p *keptZygote) {
	if n.current == p {
		n.current = nil
	}
	p.retired = true
	n.sweep(p)
}

// sweep ends a zygote that nobody needs. The lock is held.
func (n *zygotes) sweep(p *keptZygote) {
	if !p.retired || p.machines > 0 {
		return
	}
	p.retired, p.ended = false, true // once
	n.engine.background.Go(func() {
		if err := p.Destroy(context.Background()); err != nil {
			n.engine.log.Error("cannot destroy a zygote", "error", err)
		}
	})
}

// close gives up the zygote. Machines with forks of it live on.
func (n *zygotes) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		n.retireLocked(n.current)
	}
}

// ready says whether there is a zygote to fork from.
func (n *zygotes) ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current != nil && !n.current.dead() && n.unfit == nil
}

// how says how the pool's interpreters come to be.
func (n *zygotes) how() (interpreters, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.unfit != nil:
		return "started", n.unfit.Error()
	case n.current != nil && !n.current.dead():
		return "forked", ""
	}
	return "", ""
}
