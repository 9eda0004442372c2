package engine

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/internal/processors"
	"pinfold/sandbox"
)

// Options are what an Engine needs.
type Options struct {
	// Drivers are the ways to make sandboxes, in order. "auto" takes
	// the first that can make what is asked for.
	Drivers []driver.Driver
	// Template describes what the sandboxes of a template hold.
	Template func(name string) (image.Template, error)
	// Host is the host's file tree, in which a template's programs are looked up.
	Host fs.FS

	// The rest is for servers; the zero values are ready for use.

	// Store keeps records; nil keeps none. The engine does not close it.
	Store records.Store
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
	// CompileCache keeps what compile steps make; nil: every run compiles. The
	// engine does not close it.
	CompileCache *compilecache.Cache
	Log          *slog.Logger // nil: none
	Observer     Observer     // nil: none
}

// Engine runs programs. It is safe for concurrent use.
type Engine struct {
	options  Options
	log      *slog.Logger
	observer Observer
	gate     *admission.Gate
	records  *records.Keeper // nil: there is no store

	running    sync.WaitGroup // runs
	background sync.WaitGroup // everything that goes on by itself
	making     atomic.Int64   // requests that make a machine right now
	opened     atomic.Bool
	quit       chan struct{}
	late       chan struct{} // places for destructions after the answer
	runCtx     context.Context
	cancelRuns context.CancelFunc
	languages  languages
	toolchains toolchains
	probed     ttlCache[string, driver.Report] // by driver
	programs   ttlCache[string, string]        // see lookup
	processors processors.Shares
	parsing    sync.Mutex // held while results that are not small are taken apart, for their memory's sake

	beforeTake func() // of tests: called between choosing a pool and taking from it; nil

	mu          sync.Mutex
	sandboxes   map[string]*Sandbox
	runs        map[string]*liveRun
	pools       map[string]*pool
	claims      map[runKey]*keyClaim
	onDemand    map[string]*onDemand // by the pool's name
	draining    bool
	undestroyed int
}

// New returns an engine. It owns the drivers from now on.
func New(o Options) *Engine {
	e := &Engine{
		options: o, log: o.Log, observer: o.Observer, gate: admission.NewGate(o.Capacity, o.Quota),
		quit: make(chan struct{}), late: make(chan struct{}, 2*runtime.NumCPU()),
		sandboxes: map[string]*Sandbox{}, runs: map[string]*liveRun{}, pools: map[string]*pool{}, claims: map[runKey]*keyClaim{}, onDemand: map[string]*onDemand{},
	}
	if e.log == nil {
		e.log = discardLog()
	}
	if o.Store != nil {
		e.records = records.NewKeeper(o.Store, e.log)
	}
	if e.observer == nil {
		e.observer = nobody{}
	}
	e.runCtx, e.cancelRuns = context.WithCancel(context.Background())
	return e
}

// Warm finds out beforehand what the first run will need: it looks at the host
// from all sides at once and leaves nothing there. Errors come back with the run.
func (e *Engine) Warm(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = e.options.Template(sandbox.TemplateHost) })
	for _, d := range e.options.Drivers {
		wg.Go(func() { _, _ = d.Probe(ctx) })
	}
	wg.Wait()
}

// Close ends what is left, as Drain does without patience, and releases the
// drivers.
func (e *Engine) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	errs := []error{e.Drain(now)}
	close(e.quit)
	e.background.Wait()
	e.records.Flush()
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

// Reports returns what each driver can do on this host.
func (e *Engine) Reports(ctx context.Context) ([]driver.Report, error) {
	var reports []driver.Report
	for _, d := range e.options.Drivers {
		r, err := d.Probe(ctx)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// plan chooses the driver of a machine and plans it. Weaker drivers are asked about this
// host only where the stronger ones cannot make it.
func (e *Engine) plan(ctx context.Context, spec sandbox.MachineSpec, id string) (driver.Driver, driver.Plan, error) {
	var names []string
	var reports []driver.Report
	var refusal error
	for _, d := range e.options.Drivers {
		names = append(names, d.Name())
		if spec.Driver != sandbox.DriverAuto && spec.Driver != d.Name() {
			continue
		}
		r, err := e.probe(ctx, d)
		if err != nil {
			return nil, driver.Plan{}, err
		}
		reports = append(reports, r)
		var plan driver.Plan
		if plan, refusal = driver.Choose(spec, reports, machineID(id)); refusal == nil {
			return d, plan, nil
		}
	}
	if refusal != nil {
		return nil, driver.Plan{}, refusal
	}
	return nil, driver.Plan{}, &sandbox.Error{
		Code: sandbox.CodeDriverUnknown, Field: "driver",
		Message: fmt.Sprintf("no driver \"%s\"", sandbox.SafeText(spec.Driver, 60)),
		Hint:    "the drivers are auto, " + strings.Join(names, ", "),
	}
}

// newID returns a new id: a prefix and 26 characters of [a-z2-7].
func newID(prefix string) string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic("engine: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	return prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// machineID is the part of a run's id that may name things on the host.
func machineID(runID string) string { return strings.TrimPrefix(runID, "run_") }
