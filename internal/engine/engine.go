// Package engine owns every sandbox from admission to destruction. Edges ask it for
// runs and for sandboxes that stay; the packages below it each have one part of what that
// takes. It imports no edge and no driver implementation: those are handed in.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/planner"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/image"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/processors"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// Options are what an Engine needs.
type Options struct {
	// Drivers are the ways to make sandboxes, in order. "auto" takes
	// the first that can make what is asked for.
	Drivers []driver.Driver
	// Template describes what the sandboxes of a template hold.
	Template func(name string) (image.Template, error)
	// Home writes what an image has in its user's home; nil: none has anything.
	Home execution.Homes
	// Templates names all templates; nil: there is the host's only.
	Templates func(ctx context.Context) ([]string, error)
	// Host is the host's file tree, in which a template's programs are looked up.
	Host fs.FS

	// The rest is for servers; the zero values are ready for use.

	// Store keeps records; nil keeps none. The engine does not close it.
	Store records.Store
	// Auditor keeps the audit log; nil: there is none. It needs a store. The engine does
	// not close it.
	Auditor records.Auditor
	// Capacity is for all tenants together; Quota is one tenant's share.
	Capacity admission.Capacity
	Quota    func(tenant string) admission.Quota
	// Pools are filled by Open.
	Pools []sandbox.PoolSpec
	// Policy is what the operator decides about limits.
	Policy admission.Policy
	// DefaultTTL is the time to live of a sandbox that asks for none, MaxTTL
	// bounds it; 0: sandbox.DefaultTTLMS and sandbox.MaxTTLMS.
	DefaultTTL, MaxTTL time.Duration
	// Retention is how long records of what has ended are kept; 0: for ever.
	Retention time.Duration
	// DestroyLater answers a run before its sandbox is destroyed, which then
	// happens in the background, and is bounded. Otherwise nothing is left
	// when Run returns.
	DestroyLater bool
	// Version is this program's.
	Version string
	// Scan looks at programs before they run; nil: runs that ask for that are refused.
	Scan runs.ScanFunc
	// CompileCache keeps what compile steps make; nil: every run compiles. The
	// engine does not close it.
	CompileCache *compilecache.Cache
	// Packages are what requests may ask for; nil: they can have none.
	Packages *packages.Store
	// Snapshots say where snapshots are kept and how much they may take. Their records
	// are the store's.
	Snapshots snapshots.Options
	// Secrets are what endpoints may name; nil: there are none.
	Secrets secret.Finder
	// Gates makes what checks output; nil: none can be checked.
	Gates execution.Gates
	// Rules are the operator's policy as it is now; nil: there is none. Approver asks a
	// person about a run; nil: those who use Approvals and Decide are asked.
	Rules    func() *policy.Policy
	Approver runs.Approver
	Log      *slog.Logger // nil: none
	Observer Observer     // nil: none
}

// Engine runs programs (its Runner) and keeps living sandboxes (its Manager), which share
// one gate, one planner, the pools and the records. It is safe for concurrent use.
type Engine struct {
	*runs.Runner
	*living.Manager

	options   Options
	log       *slog.Logger
	observer  Observer
	gate      *admission.Gate
	planner   *planner.Planner
	pools     *pool.Pools
	records   *records.Keeper // nil: there is no store
	snapshots *snapshots.Keeper

	background sync.WaitGroup // everything that goes on by itself
	quit       chan struct{}
	processors processors.Shares

	draining atomic.Bool
}

// New returns an engine. It owns the drivers from now on.
func New(o Options) *Engine {
	e := &Engine{
		options: o, log: o.Log, observer: o.Observer, gate: admission.NewGate(o.Capacity, o.Quota), planner: planner.New(o.Drivers, o.Template, o.Host),
		quit: make(chan struct{}),
	}
	if e.log == nil {
		e.log = discardLog()
	}
	e.pools = pool.New(pool.Options{Planner: e.planner, Policy: o.Policy, Secrets: o.Secrets, Log: e.log})
	if o.Store != nil {
		e.records = records.NewKeeper(o.Store, e.log)
	}
	if e.observer == nil {
		e.observer = nobody{}
	}
	o.Snapshots.Log = e.log
	if o.Store != nil {
		o.Snapshots.Records = o.Store
	}
	e.snapshots = snapshots.New(o.Snapshots)
	e.Runner = runs.New(runs.Options{
		Policy: o.Policy, Gate: e.gate, Planner: e.planner, Pools: e.pools, Processors: &e.processors, Records: e.records, Auditor: o.Auditor, Gates: o.Gates, Rules: o.Rules, Approver: o.Approver, Secrets: o.Secrets, Level: e.level, Version: o.Version,
		Scan: o.Scan, Cache: o.CompileCache, Packages: o.Packages, Host: o.Host, Home: o.Home, DestroyLater: o.DestroyLater, Observer: e.observer, Log: e.log,
	})
	e.Manager = living.New(living.Options{
		Drivers: o.Drivers, Policy: o.Policy, Gate: e.gate, Planner: e.planner, Pools: e.pools, Processors: &e.processors, Records: e.records, Auditor: o.Auditor, Gates: o.Gates, Secrets: o.Secrets, Rules: o.Rules, Packages: e.Runner, Snapshots: e.snapshots, Home: o.Home,
		DefaultTTL: o.DefaultTTL, MaxTTL: o.MaxTTL, Observer: e.observer, Log: e.log,
	})
	return e
}

// Warm finds out beforehand what the first run will need: it looks at the host
// from all sides at once and leaves nothing there. Errors come back with the run.
func (e *Engine) Warm(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = e.planner.Template(sandbox.TemplateHost) })
	for _, d := range e.options.Drivers {
		wg.Go(func() { _, _ = d.Probe(ctx, image.Template{}) }) // what it finds out of the host
	}
	wg.Wait()
}

// Close ends what is left, as Drain does whose context has ended, and releases the
// drivers.
func (e *Engine) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	errs := []error{e.Drain(now)}
	close(e.quit)
	e.background.Wait()
	e.Runner.Close()
	e.Manager.Close()
	e.pools.Close()
	e.records.Flush()
	e.snapshots.Close()
	for _, d := range e.options.Drivers {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Leftovers removes what earlier, dead processes left behind.
func (e *Engine) Leftovers(ctx context.Context) ([]driver.Leftover, error) {
	var all []driver.Leftover
	var errs []error
	for _, d := range e.options.Drivers {
		found, err := d.Leftovers(ctx)
		all = append(all, found...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Reports returns what each driver can do on this host, in sandboxes of its own programs.
func (e *Engine) Reports(ctx context.Context) ([]driver.Report, error) {
	var reports []driver.Report
	for _, name := range e.Drivers() {
		r, err := e.Report(ctx, name)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// Drivers names the drivers, in the order in which they are taken.
func (e *Engine) Drivers() (names []string) {
	for _, d := range e.options.Drivers {
		names = append(names, d.Name())
	}
	return names
}

// level is how strongly the driver of a name isolates.
func (e *Engine) level(name string) string {
	for _, d := range e.options.Drivers {
		if d.Name() == name {
			return d.Abilities().Level
		}
	}
	return ""
}

// Most is the most that a request may ask for, where no profile and no rule says less.
func (e *Engine) Most() sandbox.Limits { return e.options.Policy.Max }

// Within is an error whose advice names nothing that is more than that.
func (e *Engine) Within(err *sandbox.Error) *sandbox.Error {
	return sandbox.AsError(e.options.Policy.Most("", nil).Error(err, sandbox.Limits{}))
}

// Tools are the profiles that requests of a tenant can name, of those in only unless that is
// nil.
func (e *Engine) Tools(tenant string, only []string) []sandbox.Tool {
	return e.options.Policy.Profiles.Tools(tenant, only, func(driver string) (strongest string) {
		for _, d := range e.options.Drivers {
			if level := d.Abilities().Level; (driver == "" || driver == d.Name()) && !sandbox.LevelAtLeast(strongest, level) {
				strongest = level
			}
		}
		return strongest
	})
}

// Report is one of Reports.
func (e *Engine) Report(ctx context.Context, name string) (driver.Report, error) {
	host, err := e.planner.Template(sandbox.TemplateHost)
	if err != nil {
		return driver.Report{}, err
	}
	for _, d := range e.options.Drivers {
		if d.Name() == name {
			return d.Probe(ctx, host)
		}
	}
	return driver.Report{}, &sandbox.Error{
		Code: sandbox.CodeDriverUnknown, Field: "driver", Message: fmt.Sprintf("no driver \"%s\"", sandbox.SafeText(name, 60)),
		Hint: "the drivers are " + strings.Join(e.Drivers(), ", "),
	}
}
