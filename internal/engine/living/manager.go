// Package living keeps sandboxes that stay: it makes, finds and ends them, watches what
// goes on in them, and lets their owners run processes and use files. What happens in one
// machine is package execution's.
package living

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/planner"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/processors"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// Options are what a Manager works with.
type Options struct {
	Drivers    []driver.Driver // whose machines may outlive the process
	Policy     admission.Policy
	Gate       *admission.Gate
	Planner    *planner.Planner
	Pools      *pool.Pools
	Processors *processors.Shares
	Records    *records.Keeper // nil: sandboxes are not recorded
	Auditor    records.Auditor // nil: there is no audit log
	Gates      execution.Gates // nil: no output can be checked
	Secrets    secret.Finder   // that output is checked for; nil: there are none
	// Rules are the operator's policy as it is now; nil: there is none.
	Rules     func() *policy.Policy
	Packages  Packages
	Snapshots *snapshots.Keeper
	Home      execution.Homes // nil: no image has anything in its user's home
	// DefaultTTL is the time to live of a sandbox that asks for none, MaxTTL bounds
	// it; 0: sandbox.DefaultTTLMS and sandbox.MaxTTLMS.
	DefaultTTL, MaxTTL time.Duration
	Observer           Observer
	Log                *slog.Logger
}

// Packages has what programs can import, see runs.Runner.
type Packages interface {
	Packages(ctx context.Context, tenant string, p, had sandbox.Packages, in sandbox.MachineSpec) (*packages.Sets, error)
	Fetch(ctx context.Context, tenant string, sets *packages.Sets) (*packages.Use, error)
}

// Observer is told what happens to living sandboxes. Calls come from many goroutines and
// must return quickly.
type Observer interface {
	SandboxCreated(warm bool, createMS float64)
	SandboxEnded(cause sandbox.CauseKind, network *sandbox.NetworkUse)
	Queued(d time.Duration)
	Refused(code string)
}

// Manager has all living sandboxes. It is safe for concurrent use.
type Manager struct {
	drivers            []driver.Driver
	policy             admission.Policy
	gate               *admission.Gate
	planner            *planner.Planner
	pools              *pool.Pools
	processors         *processors.Shares
	records            *records.Keeper
	auditor            records.Auditor
	gates              execution.Gates
	secrets            secret.Finder
	rules              func() *policy.Policy
	packages           Packages
	snapshots          *snapshots.Keeper
	home               execution.Homes
	defaultTTL, maxTTL time.Duration
	observer           Observer
	log                *slog.Logger

	background sync.WaitGroup // everything that goes on by itself
	quit       chan struct{}

	mu        sync.Mutex
	sandboxes map[string]*Sandbox
	draining  bool
}

// New returns a Manager that has no sandbox.
func New(o Options) *Manager {
	return &Manager{
		drivers: o.Drivers, policy: o.Policy, gate: o.Gate, planner: o.Planner, pools: o.Pools, processors: o.Processors, records: o.Records, auditor: o.Auditor, gates: o.Gates, secrets: o.Secrets, rules: o.Rules, packages: o.Packages, snapshots: o.Snapshots, home: o.Home,
		defaultTTL: o.DefaultTTL, maxTTL: o.MaxTTL, observer: o.Observer, log: o.Log,
		quit: make(chan struct{}), sandboxes: map[string]*Sandbox{},
	}
}

// TakesWork returns nil when sandboxes can be made, or why not: the manager is draining,
// or what is there cannot be recorded.
func (mg *Manager) TakesWork() error {
	mg.mu.Lock()
	draining := mg.draining
	mg.mu.Unlock()
	if draining {
		return admission.ShuttingDown()
	}
	if n := mg.records.Unwritten(); n > 0 {
		return admission.Busy(sandbox.CodeInsufficient, fmt.Sprintf("%d records cannot be written", n), "make room on the disk of the state directory; the log has the reason", 5*time.Second)
	}
	return nil
}

// Recover goes on with the sandboxes of an earlier process whose machines outlived it, and
// records the end of the others. It says how many go on. Machines that belong to nothing
// that goes on are destroyed.
func (mg *Manager) Recover(ctx context.Context, earlier []records.Sandbox) (adopted int, err error) {
	found, err := mg.keptMachines(ctx)
	if err != nil {
		return 0, err
	}
	now := time.Now().UTC().Round(0)
	lost := sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "the server ended while it lived", Hint: "create it again"}
	goesOn := mg.adoptAll(ctx, earlier, found)
	for i, o := range earlier {
		if goesOn[i] {
			adopted++
			continue
		}
		if o.Info.State != sandbox.StateEnding || o.Info.Cause == nil { // else what ended it is known
			o.Info.Cause = &lost
		}
		o.Info.State, o.Info.EndedAt = sandbox.StateEnded, &now
		(&Sandbox{manager: mg, tenant: o.Tenant, key: o.Key(), level: mg.level(o.Info.Isolation.Driver), info: o.Info}).attestEnded(o.Info)
		if err := mg.records.SaveSandbox(ctx, o.Tenant, o.Info); err != nil {
			return adopted, err
		}
	}
	mg.destroyUnknown(ctx, found)
	return adopted, nil
}

// Refuse has no sandbox made any more.
func (mg *Manager) Refuse() {
	mg.mu.Lock()
	defer mg.mu.Unlock()
	mg.draining = true
}

// Drain ends all sandboxes, but for those whose machines outlive us and are recorded. It
// follows Refuse.
func (mg *Manager) Drain() {
	for _, s := range mg.living() {
		<-s.settled()
		if s.leave() {
			continue
		}
		s.endFor(sandbox.Cause{Kind: sandbox.CauseDestroyed, Evidence: "the server was shut down"})
		<-s.Ended()
	}
}

// Close waits until nothing goes on any more. It follows Drain.
func (mg *Manager) Close() {
	close(mg.quit)
	mg.background.Wait()
}

// Count says how many sandboxes are in each state, and how many processes run in them.
func (mg *Manager) Count() (states map[sandbox.State]int, processes int) {
	states = map[sandbox.State]int{}
	for _, s := range mg.living() {
		info := s.Info()
		states[info.State]++
		processes += info.Processes
	}
	return states, processes
}

// settled is closed when a sandbox is no longer being created.
func (s *Sandbox) settled() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s.Info().State == sandbox.StateCreating {
			time.Sleep(time.Millisecond)
		}
	}()
	return done
}

// living returns the sandboxes that have not ended.
func (mg *Manager) living() []*Sandbox {
	mg.mu.Lock()
	defer mg.mu.Unlock()
	all := make([]*Sandbox, 0, len(mg.sandboxes))
	for _, s := range mg.sandboxes {
		all = append(all, s)
	}
	return all
}
