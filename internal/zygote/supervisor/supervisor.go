// Package supervisor keeps a zygote alive from which a pool's interpreters are forked:
// it starts one when an interpreter is wanted, replaces one that is old, grows, fails or
// dies, and ends one that was replaced when the last machine with a child of it is gone.
//
// It knows no pool and makes no zygote itself: both are handed to it.
package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

const (
	// maxAge is after how long a zygote is replaced, so that a change of what
	// is installed on the host is seen.
	maxAge = time.Hour
	// maxGrowth is how much memory in bytes a zygote may gain, which it has no
	// reason to, before it is replaced.
	maxGrowth = 64 << 20
	// weighInterval is how often a zygote's age and memory are read.
	weighInterval = time.Second
)

// Options are what a Supervisor works with. All are needed.
type Options struct {
	// Start makes a zygote. Its error is a *zygote.UnfitError or errors.ErrUnsupported
	// where interpreters cannot be forked.
	Start func(ctx context.Context) (driver.Zygote, error)
	// Lost is called when a zygote has ended by itself, and its children with it.
	Lost func()
	// Go runs what goes on behind callers, and outlives them.
	Go  func(func())
	Log *slog.Logger
}

// Supervisor has the zygote of a pool, one at a time. All methods are safe for
// concurrent use.
type Supervisor struct {
	options Options
	turns   chan struct{} // held by those who are forking

	mu      sync.Mutex
	current *supervised
	loading *loading
	unfit   error // why interpreters cannot be forked
}

// loading is the start of a zygote that is under way.
type loading struct {
	over chan struct{}
	err  error // once it is over
}

// supervised is one zygote. The lock of the Supervisor guards it.
type supervised struct {
	driver.Zygote
	made     time.Time
	memory   int64 // when it had loaded everything, in bytes
	weighed  time.Time
	machines int
	retired  bool
	ended    bool // by us
}

// New returns a Supervisor that has no zygote yet.
func New(o Options) *Supervisor {
	return &Supervisor{options: o, turns: make(chan struct{}, 2*runtime.NumCPU())}
}

// Forked is a machine with a child of a zygote in it.
type Forked struct {
	Machine driver.Machine
	Child   *zygote.Child
	// Release says that the machine is gone. It may be called again.
	Release func()

	zygote *supervised
}

// Orphaned says whether the zygote has ended, and with it the child.
func (f *Forked) Orphaned() bool { return f.zygote.dead() }

// Fork makes the plan's machine with a child in it. ok is false when interpreters cannot be
// forked here and must be started.
func (s *Supervisor) Fork(ctx context.Context, plan driver.Plan) (f *Forked, ok bool, err error) {
	z, err := s.borrow(ctx)
	if z == nil || err != nil {
		return nil, err != nil, err
	}
	m, c, err := s.inTurn(ctx, z, plan)
	if err != nil {
		if code := sandbox.AsError(err).Code; ctx.Err() == nil && code != sandbox.CodeResourceUnavailable && code != sandbox.CodeLimitInvalid {
			s.retire(z) // a new one may not have what ails this one
		}
		s.giveBack(z)
		return nil, true, err
	}
	return &Forked{Machine: m, Child: c, Release: sync.OnceFunc(func() { s.giveBack(z) }), zygote: z}, true, nil
}

// Ready says whether there is a zygote to fork from.
func (s *Supervisor) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil && !s.current.dead() && s.unfit == nil
}

// Unfit says why interpreters cannot be forked; nil when they can, or nobody knows yet.
func (s *Supervisor) Unfit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfit
}

// Close gives up the zygote. Machines with children of it live on.
func (s *Supervisor) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		s.retireLocked(s.current)
	}
}

// dead says whether it has ended, and all its children with it.
func (z *supervised) dead() bool {
	select {
	case <-z.Dead():
		return true
	default:
		return false
	}
}

// outworn says whether the zygote should make no more children. The lock of the
// Supervisor is held.
func (z *supervised) outworn(ctx context.Context) bool {
	if z.dead() {
		return true
	}
	if time.Since(z.weighed) < weighInterval {
		return false
	}
	z.weighed = time.Now()
	u, err := z.Usage(ctx)
	return time.Since(z.made) > maxAge || err == nil && u.MemoryBytes > z.memory+maxGrowth
}

// inTurn forks. A zygote makes one child after another, so only a few are asked
// for at a time. The others wait here, where nobody takes the zygote for stuck.
func (s *Supervisor) inTurn(ctx context.Context, z *supervised, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	select {
	case s.turns <- struct{}{}:
	case <-z.Dead():
		return nil, nil, zygote.ErrEnded
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-s.turns }()
	return z.Fork(ctx, plan)
}

// borrow returns the zygote, or nil when there can be none. It is to be given
// back.
func (s *Supervisor) borrow(ctx context.Context) (*supervised, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.unfit != nil {
			return nil, nil //nolint:nilnil // said above
		}
		if s.current != nil && s.current.outworn(ctx) {
			s.retireLocked(s.current)
		}
		if s.current != nil {
			s.current.machines++
			return s.current, nil
		}
		if err := s.load(ctx); err != nil {
			return nil, err
		}
	}
}

// load starts a zygote, or waits for somebody who does. The lock is held when it is
// called and when it returns, but not while the zygote loads.
func (s *Supervisor) load(ctx context.Context) error {
	if l := s.loading; l != nil {
		s.mu.Unlock()
		defer s.mu.Lock()
		select {
		case <-l.over:
			return l.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l := &loading{over: make(chan struct{})}
	s.loading = l
	s.mu.Unlock()
	z, err := s.start(ctx)
	s.mu.Lock()
	var unfit *zygote.UnfitError
	switch {
	case errors.As(err, &unfit) && unfit.Load:
		l.err = zygote.NotLoaded(unfit.Why)
	case errors.As(err, &unfit) || errors.Is(err, errors.ErrUnsupported):
		s.unfit = err
		s.options.Log.Info("interpreters are started, not forked", "because", err)
	case err != nil:
		l.err = err
	default:
		s.current = z
		s.options.Go(func() { s.watch(z) })
	}
	s.loading = nil
	close(l.over)
	return l.err
}

func (s *Supervisor) start(ctx context.Context) (*supervised, error) {
	z, err := s.options.Start(ctx)
	if err != nil {
		return nil, err
	}
	u, err := z.Usage(ctx)
	if err != nil {
		return nil, errors.Join(err, z.Destroy(context.WithoutCancel(ctx)))
	}
	return &supervised{Zygote: z, made: time.Now(), memory: u.MemoryBytes}, nil
}

// watch waits for a zygote's end, and says so when that was not our doing.
func (s *Supervisor) watch(z *supervised) {
	<-z.Dead()
	s.mu.Lock()
	ended := z.ended
	if !ended {
		s.retireLocked(z)
	}
	s.mu.Unlock()
	if !ended {
		s.options.Lost()
	}
}

// giveBack says that a machine is gone, or was not made after all.
func (s *Supervisor) giveBack(z *supervised) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z.machines--
	s.endUnused(z)
}

func (s *Supervisor) retire(z *supervised) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retireLocked(z)
}

func (s *Supervisor) retireLocked(z *supervised) {
	if s.current == z {
		s.current = nil
	}
	z.retired = true
	s.endUnused(z)
}

// endUnused ends a retired zygote that has no machines any more. The lock is held.
func (s *Supervisor) endUnused(z *supervised) {
	if !z.retired || z.machines > 0 {
		return
	}
	z.retired, z.ended = false, true // once
	s.options.Go(func() {
		if err := z.Destroy(context.Background()); err != nil {
			s.options.Log.Error("cannot destroy a zygote", "error", err)
		}
	})
}
