// Package runs runs programs, each in a fresh sandbox that is gone afterwards: it puts in
// what the program needs, compiles it where that is necessary, takes out what it made,
// puts the result together, and knows which runs are under way. What happens in one
// machine is package execution's.
package runs

import (
	"context"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/planner"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/processors"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// Options are what a Runner works with.
type Options struct {
	Policy     admission.Policy
	Gate       *admission.Gate
	Planner    *planner.Planner
	Pools      *pool.Pools
	Processors *processors.Shares
	Records    *records.Keeper // nil: runs are not recorded
	Auditor    records.Auditor // nil: there is no audit log
	Gates      execution.Gates // nil: no output can be checked
	// Rules are the operator's policy as it is now; nil: there is none.
	Rules func() *policy.Policy
	// Approver asks a person; nil: those who use Approvals and Decide are asked, where
	// runs are recorded.
	Approver Approver
	Secrets  secret.Finder // nil: there are none
	// Level is how strongly the driver of a name isolates, for the audit log.
	Level func(driver string) string
	// Version is this program's, for who runs a program again.
	Version string
	Scan    ScanFunc            // nil: runs that ask for a scan are refused
	Cache   *compilecache.Cache // nil: every run compiles
	// Packages are what runs may ask for; nil: they can have none.
	Packages *packages.Store
	Host     fs.FS           // in which the templates' compilers lie
	Home     execution.Homes // nil: no image has anything in its user's home
	// DestroyLater answers a run before its sandbox is destroyed, which then
	// happens in the background, and is bounded.
	DestroyLater bool
	Observer     Observer
	Log          *slog.Logger
}

// Observer is told what happens to runs. Calls come from many goroutines and must
// return quickly.
type Observer interface {
	RunStarted(tenant string)
	RunFinished(r *sandbox.Result)
	Queued(d time.Duration)
	Refused(code string)
}

// Runner runs programs. It is safe for concurrent use.
type Runner struct {
	policy        admission.Policy
	gate          *admission.Gate
	planner       *planner.Planner
	pools         *pool.Pools
	processors    *processors.Shares
	records       *records.Keeper
	auditor       records.Auditor
	gates         execution.Gates
	rules         func() *policy.Policy
	approver      Approver
	pendings      pendings
	secrets       secret.Finder
	level         func(driver string) string
	version       string
	scan          ScanFunc
	scans         *admission.Gate // places for scans
	compileCache  *compilecache.Cache
	packages      *packages.Store
	host          fs.FS
	home          execution.Homes
	destroysLater bool
	observer      Observer
	log           *slog.Logger

	running    sync.WaitGroup // runs
	background sync.WaitGroup // everything that goes on by itself
	opened     atomic.Bool
	ending     chan struct{} // closed by Drain: nobody is asked any more
	quit       chan struct{}
	late       chan struct{}   // places for destructions after the answer
	runCtx     context.Context //nolint:containedctx // it ends all runs
	cancelRuns context.CancelFunc
	languages  languages
	toolchains toolchains
	parsing    sync.Mutex // held while results that are not small are taken apart, for their memory's sake

	mu       sync.Mutex
	runs     map[string]*liveRun
	claims   map[runKey]*keyClaim
	draining bool
}

// New returns a Runner.
func New(o Options) *Runner {
	rn := &Runner{
		policy: o.Policy, gate: o.Gate, planner: o.Planner, pools: o.Pools, processors: o.Processors, records: o.Records, auditor: o.Auditor, gates: o.Gates, rules: o.Rules, approver: o.Approver, secrets: o.Secrets, level: o.Level, version: o.Version,
		scan: o.Scan, scans: newScans(o.Gate.Capacity()), compileCache: o.Cache, packages: o.Packages, host: o.Host, home: o.Home, destroysLater: o.DestroyLater, observer: o.Observer, log: o.Log,
		ending: make(chan struct{}), quit: make(chan struct{}), late: make(chan struct{}, 2*runtime.NumCPU()),
		runs: map[string]*liveRun{}, claims: map[runKey]*keyClaim{},
	}
	rn.toolchains = toolchains{host: o.Host, log: o.Log, background: &rn.background, quit: rn.quit, known: map[string]*toolchain{}}
	rn.runCtx, rn.cancelRuns = context.WithCancel(context.Background())
	return rn
}

// Open says that many runs will come, not one, and begins to find out what they need.
func (rn *Runner) Open() {
	rn.opened.Store(true)
	if rn.compileCache != nil { // so that the first program that is compiled can be kept
		if t, err := rn.planner.Template(sandbox.TemplateHost); err == nil {
			rn.toolchains.fingerprint(t)
		}
	}
}

// Drain takes no new runs, waits for those that are under way until ctx ends, and
// cancels the rest.
func (rn *Runner) Drain(ctx context.Context) {
	rn.mu.Lock()
	if !rn.draining {
		rn.draining = true
		close(rn.ending)
	}
	rn.mu.Unlock()
	over := make(chan struct{})
	go func() { rn.running.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
		rn.cancelRuns()
		<-over
	}
}

// Close waits until nothing goes on any more. It follows Drain.
func (rn *Runner) Close() {
	close(rn.quit)
	rn.background.Wait()
}
