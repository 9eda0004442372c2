package living

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/failpoint"
	"pinfold/internal/guest"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// transitions are the ways a sandbox can go.
var transitions = map[sandbox.State][]sandbox.State{
	"":                    {sandbox.StateCreating},
	sandbox.StateCreating: {sandbox.StateRunning, sandbox.StateEnded},
	sandbox.StateRunning:  {sandbox.StatePaused, sandbox.StateEnding},
	sandbox.StatePaused:   {sandbox.StateRunning, sandbox.StateEnding},
	sandbox.StateEnding:   {sandbox.StateEnded},
}

// mayGo says whether a sandbox may go from one state to another.
func mayGo(from, to sandbox.State) bool { return slices.Contains(transitions[from], to) }

// Sandbox is a living sandbox. It is safe for concurrent use.
type Sandbox struct {
	manager *Manager
	tenant  string
	key     string // of who made it
	level   string // of isolation
	request sandbox.Create
	sets    *packages.Sets     // of packages, that its machine shows; nil: none
	life    context.Context    // ends when nothing of the sandbox is left
	end     context.CancelFunc // of life

	machine *pool.Machine // set before the state is running
	guest   *guest.Guest  // its agent, set with it
	release func()        // gives back what admission granted, and lets go of packages
	gate    *outputGate   // nil: what comes out is not checked
	secrets []string      // that its endpoints name, or have named, there and in what it began with; guarded by mu
	kept    bool          // the machine outlives us, and is recorded

	declaring sync.Mutex // held while what it can reach is changed, before mu
	changing  sync.Mutex // held while it is paused, resumed or copied, before mu
	mu        sync.Mutex
	info      sandbox.Info
	declared  admission.Declared
	expires   time.Time // with the monotonic clock, unlike info.ExpiresAt
	used      time.Time
	idles     bool  // somebody asked for an idle time; otherwise it follows the time to live
	busy      int   // operations under way, and who waits for processes
	asking    int   // operations for which the agent is needed to the end
	started   int   // processes that run, or are about to
	cpus      []int // the processors that they have; nil: all
	timer     *time.Timer
	processes map[string]*Process
	order     []string      // of processes, by age
	still     chan struct{} // closed when it goes on; nil: it does not stand still for a snapshot
	left      bool          // to the next process: nothing ends it any more
	watching  bool
	wake      chan struct{} // ends the watch's pause
	last      driver.Usage
	judge     verdict.Judge // the watch's
}

// Create makes a living sandbox for a tenant. It waits in the queue when there
// is no room. The error is a *sandbox.Error; then nothing is left.
func (mg *Manager) Create(ctx context.Context, tenant string, c sandbox.Create) (*Sandbox, error) {
	return mg.createAs(ctx, tenant, c, false)
}

// CreateOwn is Create for the server itself: the operator's gate is not for what it does.
func (mg *Manager) CreateOwn(ctx context.Context, tenant string, c sandbox.Create) (*Sandbox, error) {
	return mg.createAs(ctx, tenant, c, true)
}

func (mg *Manager) createAs(ctx context.Context, tenant string, c sandbox.Create, own bool) (*Sandbox, error) {
	s, err := mg.create(ctx, tenant, c, own)
	if err != nil {
		err = execution.CallerGone(ctx, err)
		mg.observer.Refused(sandbox.AsError(err).Code)
		return nil, err
	}
	return s, nil
}

func (mg *Manager) create(ctx context.Context, tenant string, c sandbox.Create, own bool) (*Sandbox, error) {
	var from *origin
	if c.Snapshot != "" {
		var err error
		if c, from, err = mg.fromSnapshot(ctx, tenant, c); err != nil {
			return nil, err
		}
		defer from.content.Close()
	}
	return mg.make(ctx, tenant, c, from, own)
}

// make makes a sandbox that begins with what is given, if anything is.
func (mg *Manager) make(ctx context.Context, tenant string, c sandbox.Create, from *origin, own bool) (*Sandbox, error) {
	idles := c.IdleMS != 0
	c, profile, err := mg.completed(ctx, tenant, c)
	if err != nil {
		return nil, err
	}
	output, err := mg.gateOf(c.Gate, own)
	if err != nil {
		return nil, err
	}
	if err := mg.recordable(); err != nil {
		return nil, err
	}
	c, ruled, err := mg.governed(ctx, tenant, c, from)
	if err != nil {
		return nil, err
	}
	p, err := mg.planSandbox(ctx, tenant, c, from)
	if err != nil {
		return nil, err
	}
	s, err := mg.withRoom(ctx, tenant, c, p)
	if err != nil {
		return nil, err
	}
	s.gate, s.secrets = output, named(from.knew(), c.Network)
	s.key, s.level = records.KeyOf(ctx), mg.level(p.plan.Posture.Driver)
	s.idles, s.info.Profile, s.info.Policy = idles, profile, ruled
	if from != nil {
		s.info.ForkOf = from.forkOf
	}
	if err := mg.admit(s); err != nil {
		s.release()
		return nil, err
	}
	failpoint.Hit("create.journalled")
	start := time.Now()
	var running []*Process
	if from.goesOn() {
		running, err = s.goOnFrom(ctx, p.driver, p.plan, p.spec.Require, from)
	} else {
		s.machine, _, err = mg.pools.Obtain(ctx, pool.Request{Tenant: tenant, Spec: p.spec, Driver: p.driver, Plan: p.plan})
	}
	if err != nil {
		cause := sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "it could not be made"}
		if ctx.Err() != nil {
			cause = sandbox.Cause{Kind: sandbox.CauseCancelled, Evidence: "the caller went away while it was made"}
		}
		s.finish(cause, sandbox.AsError(execution.CallerGone(ctx, err)))
		return nil, err
	}
	s.guest = s.machine.Greeted()
	failpoint.Hit("create.machine")
	if err := s.fill(ctx, from); err != nil {
		return nil, s.most().Error(err, s.info.Limits)
	}
	s.recordMachine()
	s.start(time.Since(start))
	s.goesOn(running)
	failpoint.Hit("create.running")
	if err := s.attestCreated(ctx); err != nil {
		s.fails(sandbox.Cause{Kind: sandbox.CauseCancelled, Evidence: "it could not be recorded in the audit log"})
		return nil, err
	}
	if !from.goesOn() { // there it runs already
		err = s.begin(ctx, p.plan.Template.Start)
	}
	if ctx.Err() != nil { // nobody would learn its id
		s.fails(sandbox.Cause{Kind: sandbox.CauseCancelled, Evidence: "the caller went away while it was made"})
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.fails(sandbox.Cause{Kind: sandbox.CauseDestroyed, Evidence: "what its template starts failed"})
		return nil, err
	}
	return s, nil
}

// withRoom waits for what a sandbox takes: its packages, and then room, since what installs
// them takes some of its own.
func (mg *Manager) withRoom(ctx context.Context, tenant string, c sandbox.Create, p planned) (*Sandbox, error) {
	used, err := mg.fetch(ctx, tenant, p.sets)
	if err != nil {
		return nil, err
	}
	queued := time.Now()
	room, err := mg.gate.Acquire(ctx, tenant, admission.Demand{MemoryBytes: p.plan.Limits.MemoryBytes, CPUs: p.plan.Limits.CPUs})
	if err != nil {
		used.Release()
		return nil, err
	}
	s := mg.newSandbox(tenant, c, p.plan, func() { used.Release(); room() })
	if s.sets = p.sets; used != nil {
		s.info.Packages = &used.Packages
	}
	s.info.Timings.QueueMS = execution.Milliseconds(time.Since(queued))
	mg.observer.Queued(time.Since(queued))
	return s, nil
}

// fails ends a sandbox that nobody gets.
func (s *Sandbox) fails(why sandbox.Cause) {
	s.endFor(why)
	select {
	case <-s.Ended():
	case <-s.manager.quit:
	}
}

// checkTTL holds a time to live against the configured maximum.
func (mg *Manager) checkTTL(ms int64) error {
	most := mg.maxTTL.Milliseconds()
	if most == 0 || ms <= most {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeLimitInvalid, Field: "ttl_ms",
		Message: fmt.Sprintf("%s is more than this server allows", sandbox.FormatQuantity(ms, sandbox.UnitMilliseconds)),
		Hint:    fmt.Sprintf("ask for at most %s and extend the sandbox while you use it", sandbox.FormatQuantity(most, sandbox.UnitMilliseconds)),
	}
}

func (mg *Manager) newSandbox(tenant string, c sandbox.Create, plan driver.Plan, release func()) *Sandbox {
	now := time.Now()
	ttl := time.Duration(c.TTLMS) * time.Millisecond
	limits := shownLimits(c, plan)
	life, end := context.WithCancel(context.Background())
	return &Sandbox{
		manager: mg, tenant: tenant, request: c, declared: admission.NewDeclared(c.Network), life: life, end: end, release: release,
		expires: now.Add(ttl), used: now, processes: map[string]*Process{}, wake: make(chan struct{}, 1),
		judge: verdict.Judge{Limits: limits, KillOne: plan.KillOne},
		info: sandbox.Info{
			ID: records.NewID("sbx_"), State: sandbox.StateCreating, Template: c.Template, Limits: limits,
			Metadata: c.Metadata, Snapshot: c.Snapshot, Isolation: plan.Posture, CreatedAt: now.UTC().Round(0), ExpiresAt: now.Add(ttl).UTC().Round(0),
			IdleMS: c.IdleMS, UsedAt: now.UTC().Round(0),
		},
	}
}

// shownLimits are the plan's, without limits of time that nobody asked for.
func shownLimits(c sandbox.Create, plan driver.Plan) sandbox.Limits {
	l := plan.Limits
	l.WallTimeMS, l.CPUTimeMS = c.Limits.WallTimeMS, c.Limits.CPUTimeMS
	return l
}

// admit enters a sandbox in the journal and in the table, before anything is
// made for it on the host.
func (mg *Manager) admit(s *Sandbox) error {
	if err := mg.TakesWork(); err != nil {
		return err
	}
	if mg.records != nil {
		if err := mg.records.SaveSandbox(context.Background(), s.tenant, s.info); err != nil {
			return err
		}
	}
	mg.mu.Lock()
	draining := mg.draining
	if !draining {
		mg.sandboxes[s.info.ID] = s
	}
	mg.mu.Unlock()
	if !draining {
		return nil
	}
	s.mu.Lock()
	now := time.Now().UTC().Round(0)
	s.enter(sandbox.StateEnded)
	s.info.EndedAt, s.info.Error = &now, admission.ShuttingDown()
	s.info.Cause = &sandbox.Cause{Kind: sandbox.CauseCancelled, Evidence: "the server was shutting down"}
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	return admission.ShuttingDown()
}

// start makes a sandbox whose machine is there available.
func (s *Sandbox) start(took time.Duration) {
	s.mu.Lock()
	s.info.Timings.CreateMS = execution.Milliseconds(took)
	s.info.Warm, s.info.Isolation = s.machine.Pooled(), s.machine.Plan.Posture
	s.enter(sandbox.StateRunning)
	s.timer = time.AfterFunc(s.untilEnd(time.Now()), s.timeUp)
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	s.manager.observer.SandboxCreated(info.Warm, info.Timings.CreateMS)
	go s.guard()
}

// guard waits for the machine's own end, or for that of its agent's connection:
// without it nothing can be done in the sandbox any more.
func (s *Sandbox) guard() {
	select {
	case <-s.life.Done():
		return
	case <-s.machine.Machine.Dead():
	case <-s.guest.Done():
	}
	death := s.machine.Death(execution.KillTimeout)
	if death == nil {
		s.endFor(sandbox.Cause{Kind: sandbox.CauseLost, Evidence: s.guest.Err().Error()})
		return
	}
	if death.Kind == driver.DeathDestroyed {
		return
	}
	_, cause := verdict.Of(verdict.Evidence{Limits: s.info.Limits, Usage: death.Usage, Death: death})
	s.endFor(cause)
}

// enter changes the state. A way that is not in the table is a fault of ours.
func (s *Sandbox) enter(to sandbox.State) {
	if !mayGo(s.info.State, to) {
		panic(fmt.Sprintf("living: a sandbox cannot go from %s to %s", s.info.State, to))
	}
	s.info.State = to
}

// ID returns the sandbox's id.
func (s *Sandbox) ID() string { return s.info.ID }

// Ended is closed when nothing of the sandbox is left.
func (s *Sandbox) Ended() <-chan struct{} { return s.life.Done() }

// Info describes the sandbox now.
func (s *Sandbox) Info() sandbox.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.describe()
}

// describe fills in what changes all the time. The lock is held.
func (s *Sandbox) describe() sandbox.Info {
	info := s.info
	info.UsedAt = s.used.UTC().Round(0)
	if s.busy > 0 {
		info.UsedAt = time.Now().UTC().Round(0)
	}
	for _, p := range s.processes {
		if p.running() {
			info.Processes++
		}
	}
	end := time.Now()
	if info.EndedAt != nil {
		end = *info.EndedAt
	}
	info.Usage = verdict.UsageOf(s.last, end.Sub(info.CreatedAt))
	if info.State != sandbox.StateCreating && s.machine != nil {
		info.Network = s.machine.Network()
	}
	if !s.declared.Made.None() {
		now := s.manager.policy.Network.Told(s.declared.Now)
		info.Declared = &now
	}
	return info
}

// save writes the description to the store. That the store fails must not end
// a sandbox that works: it is tried again.
func (s *Sandbox) save(info sandbox.Info) {
	s.manager.records.KeepSandbox(s.tenant, info)
}

// stays says whether the sandbox is there and does not end. The lock is held.
func (s *Sandbox) stays() bool {
	return s.info.State == sandbox.StateRunning || s.info.State == sandbox.StatePaused
}

// notRunning is why an operation cannot be done. The lock is held.
func (s *Sandbox) notRunning() *sandbox.Error {
	if s.info.State == sandbox.StatePaused {
		return (&sandbox.Error{Code: sandbox.CodeConflict, Message: fmt.Sprintf("sandbox %s is paused", s.info.ID)}).
			WithAdvice(sandbox.Advise("let it go on: %s", sandbox.Call(sandbox.CallResumeSandbox)))
	}
	is := map[sandbox.State]string{sandbox.StateCreating: "is being created", sandbox.StateEnding: "is ending", sandbox.StateEnded: "has ended"}[s.info.State]
	e := (&sandbox.Error{Code: sandbox.CodeGone, Message: fmt.Sprintf("sandbox %s %s", s.info.ID, is)}).
		WithAdvice(sandbox.Advise("create another one: %s", sandbox.Call(sandbox.CallCreateSandbox)))
	if s.info.State == sandbox.StateCreating {
		e.Code = sandbox.CodeConflict
		e = e.WithHint("wait until it is running")
	}
	if s.info.Cause != nil {
		e.Message += fmt.Sprintf(" (%s)", s.info.Cause.Kind)
	}
	return e
}

// Destroy ends the sandbox and returns when nothing of it is left. It is
// idempotent: the first reason to end stays the cause.
func (s *Sandbox) Destroy(ctx context.Context) (sandbox.Info, error) {
	go s.endFor(sandbox.Cause{Kind: sandbox.CauseDestroyed, Evidence: "the caller ended the sandbox"})
	select {
	case <-s.life.Done():
		info := s.Info()
		if info.State != sandbox.StateEnded { // left to the next process
			return info, admission.ShuttingDown()
		}
		return info, nil
	case <-ctx.Done():
		return s.Info(), &sandbox.Error{Code: sandbox.CodeConflict, Message: "the sandbox is still being destroyed", Err: ctx.Err()}
	}
}

// endFor destroys the sandbox for a reason. Only the first call does anything.
func (s *Sandbox) endFor(cause sandbox.Cause) {
	cause = s.most().Cause(cause, s.info.Limits)
	s.mu.Lock()
	if !s.stays() || s.left {
		s.mu.Unlock()
		return
	}
	s.enter(sandbox.StateEnding)
	s.info.Cause = &cause
	s.timer.Stop()
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	failpoint.Hit("end.recorded")
	s.manager.background.Go(func() { s.destroy(cause) })
}

// destroy removes the machine, however often it takes, and finishes.
func (s *Sandbox) destroy(cause sandbox.Cause) {
	start := time.Now()
	s.read()
	if !s.manager.pools.Destroy(s.machine, s.manager.quit) {
		return
	}
	s.read()
	s.mu.Lock()
	s.info.Timings.DestroyMS = execution.Milliseconds(time.Since(start))
	s.mu.Unlock()
	s.awaitProcesses()
	s.machine.Gone()
	failpoint.Hit("end.destroyed")
	s.finish(cause, nil)
	failpoint.Hit("end.finished")
}

// awaitProcesses waits for the end of all processes, whose agent is gone.
func (s *Sandbox) awaitProcesses() {
	s.mu.Lock()
	processes := make([]*Process, 0, len(s.processes))
	for _, p := range s.processes {
		processes = append(processes, p)
	}
	s.mu.Unlock()
	for _, p := range processes {
		p.output.Close() // nothing waits for a reader any more
		<-p.done
	}
}

// finish says that the sandbox has ended.
func (s *Sandbox) finish(cause sandbox.Cause, failure *sandbox.Error) {
	s.mu.Lock()
	s.enter(sandbox.StateEnded)
	now := time.Now().UTC().Round(0)
	s.info.EndedAt, s.info.Cause, s.info.Error = &now, &cause, failure
	info := s.describe()
	s.mu.Unlock()
	s.attestEnded(info) // before it is saved: the next process records the end of what has none
	s.save(info)
	mg := s.manager
	mg.mu.Lock()
	delete(mg.sandboxes, info.ID)
	mg.mu.Unlock()
	s.release()
	mg.records.Account(s.tenant, records.Consumption{
		Sandboxes: 1, CPUMS: info.Usage.CPUMS, WallMS: info.Usage.WallMS,
		MemoryMiBMS: info.Usage.MemoryPeakBytes >> 20 * info.Usage.WallMS,
	})
	mg.observer.SandboxEnded(cause.Kind, info.Network)
	s.end()
}

// read takes a reading of the counters, or the last one where the machine has ended.
func (s *Sandbox) read() driver.Usage {
	u := s.machine.LastUsage(context.Background())
	s.note(u)
	return u
}
