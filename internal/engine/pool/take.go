package pool

import (
	"context"
	"errors"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/egress"
	"pinfold/internal/engine/execution"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

// Request is what somebody wants a machine for.
type Request struct {
	Tenant string
	Spec   sandbox.MachineSpec // as it was asked for
	Driver driver.Driver       // that was chosen for it
	Plan   driver.Plan
	// Language is that of an interpreter that could take the program, with these
	// modules loaded; "": none could.
	Language string
	Modules  []string

	means egress.Means // what the plan's endpoints take
}

// Machine is one that was handed out, and is its holder's.
type Machine struct {
	*execution.Session

	Interpreter *warm.Interpreter // waits for its program; nil: there is none
	pool        *pool             // it came from; nil: none
}

// Pooled says whether the machine waited in a pool, or was forked for one.
func (m *Machine) Pooled() bool { return m.pool != nil }

// DestroyRetry is the pause after a destruction that failed.
const DestroyRetry = time.Second

// Destroy destroys a machine however often it takes, and says whether it is gone: not
// where quit is closed before. Then it is the next process's, which finds it by its
// name. Gone follows.
func (s *Pools) Destroy(m *Machine, quit <-chan struct{}) (gone bool) {
	for failed := false; ; failed = true {
		err := m.Close(context.Background())
		if err == nil {
			if failed {
				s.undestroyed.Add(-1)
			}
			return true
		}
		s.log.Error("cannot destroy a sandbox; trying again", "machine", m.Plan.ID, "error", err)
		if !failed {
			s.undestroyed.Add(1)
		}
		select {
		case <-quit:
			return false
		case <-time.After(DestroyRetry):
		}
	}
}

// Undestroyed is how many machines Destroy is at whose removal has failed before.
func (s *Pools) Undestroyed() int { return int(s.undestroyed.Load()) }

// Gone says that the machine has been destroyed. It is called once.
func (m *Machine) Gone() {
	if m.pool != nil {
		m.pool.returned()
	}
}

// Obtain is the one way in which requests get machines, however those are made:
// cold, from a pool, by a fork. It holds the posture of what was made, not of what
// was planned, against what the request requires, before anything of the request
// is in there. Where modules were asked for and the machine has no interpreter, why
// says why not.
func (s *Pools) Obtain(ctx context.Context, r Request) (m *Machine, why string, err error) {
	if r.means, err = egress.NewMeans(ctx, r.Plan.Network, r.Tenant, s.secrets); err != nil {
		return nil, "", err
	}
	r.Plan.Authority = r.means.Authority.PEM()
	if r.Language != "" {
		m, why = s.withInterpreter(ctx, r)
	}
	if m == nil {
		if m, err = s.plain(ctx, r); err != nil {
			return nil, "", err
		}
	}
	if err = m.Plan.Meets(r.Spec.Require); err == nil {
		return m, why, nil
	}
	if closeErr := m.Close(ctx); closeErr != nil {
		err = errors.Join(err, closeErr)
	} else {
		m.Gone()
	}
	return nil, "", err
}

// plain gives a machine without an interpreter: a waiting one if a pool has its shape,
// or else a new one.
func (s *Pools) plain(ctx context.Context, r Request) (*Machine, error) {
	if len(r.Plan.Mounts) == 0 && !r.Plan.KillOne {
		of := shapeOf(r.Plan.Template, r.Driver.Name(), r.Plan.Limits)
		if m := s.take(ctx, of, r); m != nil {
			return m, nil
		}
		missed(s.poolsOf(of))
	}
	s.making.Add(1)
	defer s.making.Add(-1)
	opened, err := execution.Open(ctx, r.Driver, r.Plan)
	if err != nil {
		return nil, err
	}
	if err := opened.OpenDoors(ctx, s.egress, r.means); err != nil {
		return nil, errors.Join(err, opened.Close(ctx))
	}
	return &Machine{Session: opened}, nil
}

// withInterpreter gives a machine in which an interpreter waits, or comes at once.
// Where none does, why says so.
func (s *Pools) withInterpreter(ctx context.Context, r Request) (m *Machine, why string) {
	of := shapeOf(r.Plan.Template, r.Driver.Name(), r.Plan.Limits)
	of.interpreter = keyOf(r.Language, r.Modules)
	fresh := forkedPlan(r.Plan).Meets(r.Spec.Require) != nil // no fork will do
	if m = s.take(ctx, of, r); m == nil && len(r.Modules) > 0 && !fresh && r.noDoors() == "" {
		s.keep(r, of)
		m = s.await(ctx, of, r)
	}
	if m != nil {
		return m, ""
	}
	pools := s.poolsOf(of)
	missed(pools)
	return nil, whyNone(pools, fresh, r)
}

// whyNone says why none of the pools of a shape had an interpreter.
func whyNone(pools []*pool, fresh bool, r Request) string {
	if why := r.noDoors(); why != "" {
		return why
	}
	if len(pools) == 0 {
		return "no pool has these modules, and all places for pools that requests ask for are taken"
	}
	why := "they were not loaded in time"
	for _, p := range pools {
		switch info := p.info(); {
		case fresh && info.Interpreters == "forked":
			return sandbox.FeatureASLR + " is required, and interpreters with these modules are forked"
		case info.Error != nil && (info.Error.Code == sandbox.CodeSpecInvalid || info.Error.Code == sandbox.CodeLimitInvalid):
			why = info.Error.Message // about the modules; what went wrong on the host is not for everybody
		case info.Error != nil:
			why = "their pool cannot be filled at the moment"
		case info.Max > 0 && info.InUse >= info.Max:
			why = "all that their pool may have are in use"
		}
	}
	return why
}

// take takes what waits in a pool of that shape, or forks it at once. It gives
// nothing that lacks what is required.
func (s *Pools) take(ctx context.Context, of shape, r Request) *Machine {
	fitting := s.poolsOf(of)
	for _, p := range fitting {
		if s.BeforeTake != nil {
			s.BeforeTake()
		}
		if w := p.take(r); w != nil {
			if m := p.handOut(ctx, w, r); m != nil {
				return m
			}
		}
	}
	return s.fork(ctx, fitting, r)
}

// noDoors says why no machine that waits, and none that is made for a fork, can have what
// the request declares; "": it declares nothing, or one can.
func (r Request) noDoors() string {
	switch {
	case len(r.Plan.Doors) == 0:
		return ""
	case !r.Driver.Abilities().LateDoors:
		return "the run declares endpoints, for which machines that wait can have no listeners here"
	case r.Plan.Authority != nil && len(r.Modules) > 0: // one that makes an SSL context while it is loaded keeps whom to trust
		return "the run's requests are read, and modules that are loaded already know nothing of the authority that signs for them"
	}
	return ""
}

// fork forks in one of the pools, where that can be done at once.
func (s *Pools) fork(ctx context.Context, pools []*pool, r Request) *Machine {
	if forkedPlan(r.Plan).Meets(r.Spec.Require) != nil || r.noDoors() != "" {
		return nil
	}
	for _, p := range pools {
		if w := p.forkNow(ctx, r.Plan); w != nil {
			return p.handOut(ctx, w, r)
		}
	}
	return nil
}

// serves says whether a machine that waits can be the request's, with the doors that it
// declares.
func (w *ready) serves(r Request) bool {
	plan := w.session.Plan
	if len(r.Plan.Doors) > 0 {
		if r.Plan.Authority != nil || w.session.Machine.Abilities().LateDoors == nil {
			return false
		}
		plan = plan.Reaching(r.Plan)
	}
	return plan.Meets(r.Spec.Require) == nil
}

// handOut makes a machine its holder's, and lets it out. It returns nil where that fails:
// then the request needs another.
func (p *pool) handOut(ctx context.Context, w *ready, r Request) *Machine {
	var err error
	made := len(w.session.Plan.Doors) > 0 // for this request: nothing that waits has doors
	if made {
		err = w.session.OpenDoors(ctx, p.set.egress, r.means)
	} else if len(r.Plan.Doors) > 0 {
		err = w.session.AddDoors(p.set.egress, r.means, r.Plan)
	}
	if err != nil {
		p.set.log.Warn("cannot give a machine of a pool its endpoints; another is made", "pool", p.description().Name, "error", err)
		p.discard([]*execution.Session{w.session})
		p.unserved(made)
		return nil
	}
	return &Machine{Session: w.session, Interpreter: w.interpreter, pool: p}
}

// poolsOf returns the pools of a shape.
func (s *Pools) poolsOf(key shape) []*pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fitting []*pool
	for _, p := range s.pools {
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
func (p *pool) forkNow(ctx context.Context, plan driver.Plan) *ready {
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
	p.set.making.Add(1)
	w, ok, err := p.fork(ctx, plan)
	p.set.making.Add(-1)
	if err == nil && ok {
		p.mu.Lock()
		p.forked++
		p.used = time.Now()
		p.mu.Unlock()
		return w
	}
	p.returned()
	if err != nil && ctx.Err() == nil {
		p.set.log.Warn("cannot fork an interpreter", "pool", spec.Name, "error", err)
	}
	return nil
}
