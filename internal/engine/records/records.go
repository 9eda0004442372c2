// Package records is what outlives the process: descriptions of sandboxes, runs with
// their results, and tenants' accounts. It says what a store must keep (Store), and
// keeps on trying where a store fails for a while (Keeper). It knows nothing of what
// is recorded but its description; which store there is, others decide.
package records

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"slices"
	"strings"
	"time"

	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// LocalTenant is the tenant of whoever operates the host.
const LocalTenant = "local"

// Store keeps what must outlive the process. Everything is looked up within a
// tenant: another tenant's object is not found. Errors are *sandbox.Error; an
// object that is not there is one of code not_found. All methods are safe for
// concurrent use, and what they have returned from survives the death of the
// process at any instant.
type Store interface {
	SandboxStore
	RunStore
	UsageStore
	SnapshotStore

	// Unfinished returns the sandboxes that have not ended and the runs
	// without a result, of all tenants.
	Unfinished(ctx context.Context) ([]Sandbox, []Run, error)
	// Ready says why nothing new could be kept at this moment, such as a full
	// disk, or nil. It may write a little to find out.
	Ready(ctx context.Context) error
	// Prune removes ended sandboxes and finished runs that are older than
	// before, and says how many.
	Prune(ctx context.Context, before time.Time) (int, error)
}

// SandboxStore keeps descriptions of sandboxes.
type SandboxStore interface {
	// SaveSandbox inserts or replaces a sandbox's description.
	SaveSandbox(ctx context.Context, tenant string, info sandbox.Info) error
	LoadSandbox(ctx context.Context, tenant, id string) (sandbox.Info, error)
	ListSandboxes(ctx context.Context, tenant string, q Query) (Page[sandbox.Info], error)
	// SaveMachine adds to a sandbox that is saved what is needed to go on with it
	// after a restart. It is forgotten when the sandbox has ended.
	SaveMachine(ctx context.Context, tenant, id string, m Machine) error
}

// RunStore keeps runs and their results.
type RunStore interface {
	// BeginRun records a run before anything is made for it. When its
	// idempotency key is already in use by the tenant, nothing is recorded and
	// the earlier run is returned.
	BeginRun(ctx context.Context, r Run) (earlier *Run, err error)
	// FinishRun records how it ended. A run that has a result keeps it.
	FinishRun(ctx context.Context, tenant, id string, result *sandbox.Result) error
	LoadRun(ctx context.Context, tenant, id string) (Run, error)
	ListRuns(ctx context.Context, tenant string, q Query) (Page[Run], error)
	// LastRuns returns the newest runs of all tenants that have finished and whose facts
	// are known, with what a scan saw in them, and nothing else of what they were.
	LastRuns(ctx context.Context, most int) ([]policy.Past, error)
}

// UsageStore keeps accounts.
type UsageStore interface {
	// AddUsage adds to a tenant's account of one day (UTC).
	AddUsage(ctx context.Context, tenant string, day time.Time, u Consumption) error
	// UsageOf returns the days from and to, both included, in order.
	UsageOf(ctx context.Context, tenant string, from, to time.Time) ([]DayUsage, error)
}

// Sandbox is a sandbox's description with its tenant. Machine is nil where nothing of it
// outlives the process.
type Sandbox struct {
	Tenant  string
	Info    sandbox.Info
	Machine *Machine
}

// Key is the id of the key by which the sandbox was made, as far as it is known.
func (s Sandbox) Key() string {
	if s.Machine == nil {
		return ""
	}
	return s.Machine.Key
}

// Machine is which machine a sandbox has, by its driver's name and its ID there, what was
// asked for, and by which key. Driver is empty where the machine does not outlive the
// process, and only who asked is to be known.
type Machine struct {
	Key     string         `json:"key,omitempty"`
	Driver  string         `json:"driver"`
	ID      string         `json:"id"`
	Request sandbox.Create `json:"request"`
	Secrets []string       `json:"secrets,omitempty"` // names of those that can be in it
}

// Run is what is known of a run.
type Run struct {
	ID             string            `json:"id"`
	Tenant         string            `json:"-"`
	CreatedAt      time.Time         `json:"created_at"`
	Language       string            `json:"language"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	IdempotencyKey string            `json:"-"`
	Digest         string            `json:"-"` // SHA-256 of the request, to tell a retry from another use of the key
	// Facts are what an operator's policy would have looked at. They are kept, and come
	// back from LastRuns alone.
	Facts policy.Facts `json:"-"`
	// Result is nil while the run is under way. In lists it is always nil.
	Result *sandbox.Result `json:"-"`
	// Status is the result's, empty while the run is under way.
	Status sandbox.Status    `json:"status,omitempty"`
	Cause  sandbox.CauseKind `json:"cause,omitempty"`
	// FinishedAt is when the result was kept; zero while the run is under way.
	FinishedAt time.Time `json:"-"`
	// State and StartedAt the engine knows, and no store. StartedAt is when the
	// run found room; zero before that, and after the run has finished.
	State     sandbox.RunState `json:"-"`
	StartedAt time.Time        `json:"-"`
}

// Finished completes a run by a result that the store may not have yet.
func (r Run) Finished(result *sandbox.Result) Run {
	r.State, r.Result, r.Status, r.Cause = sandbox.RunFinished, result, result.Status, result.Cause.Kind
	r.FinishedAt = time.Now().UTC().Round(0)
	return r
}

// Query selects and orders objects. The zero value means the newest first.
type Query struct {
	States   []sandbox.State  // of sandboxes; none: all
	Statuses []sandbox.Status // of runs; none: all
	// RunStates are of runs; none: all. A store knows only who has finished, and
	// takes queued and running for the same.
	RunStates []sandbox.RunState
	Languages []string // of runs; none: all
	// Since and Before bound when the object was made: not before the one, and
	// before the other. Zero: no bound.
	Since, Before time.Time
	Metadata      map[string]string // every pair must match
	Oldest        bool              // the oldest first
	Limit         int               // objects in one page; 0: 100; at most 1000
	Cursor        string            // from Page.Next; empty: from the beginning
}

// Finished says whether a query selects only runs that have finished, or only
// those that have not; selects is false where it does neither.
func (q Query) Finished() (finished, selects bool) {
	if len(q.RunStates) == 0 {
		return false, false
	}
	finished = slices.Contains(q.RunStates, sandbox.RunFinished)
	under := slices.ContainsFunc(q.RunStates, func(s sandbox.RunState) bool { return s != sandbox.RunFinished })
	return finished, finished != under
}

// Page is a part of a list. Next is the cursor of what follows, empty at the
// end. Objects that come meanwhile do not make others appear twice.
type Page[T any] struct {
	Items []T
	Next  string
}

// Consumption is what a tenant used.
type Consumption struct {
	Runs          int64 `json:"runs"`
	Sandboxes     int64 `json:"sandboxes"`
	CPUMS         int64 `json:"cpu_ms"`
	WallMS        int64 `json:"wall_ms"`
	MemoryMiBMS   int64 `json:"memory_mib_ms"` // peak MiB times milliseconds
	OutputBytes   int64 `json:"output_bytes"`
	ArtifactBytes int64 `json:"artifact_bytes"`
}

// Plus returns the sum of both.
func (c Consumption) Plus(more Consumption) Consumption {
	c.Runs += more.Runs
	c.Sandboxes += more.Sandboxes
	c.CPUMS += more.CPUMS
	c.WallMS += more.WallMS
	c.MemoryMiBMS += more.MemoryMiBMS
	c.OutputBytes += more.OutputBytes
	c.ArtifactBytes += more.ArtifactBytes
	return c
}

// DayUsage is one day of a tenant's account.
type DayUsage struct {
	Day string `json:"day"` // 2006-01-02, UTC

	Consumption
}

// NewID returns a new id: a prefix and 26 characters of [a-z2-7].
func NewID(prefix string) string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic("records: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	return prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// NotFound is the same for what does not exist and for what is another
// tenant's, so that nobody learns which.
func NotFound(what string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such " + what}
}

// OrNotFound is an error of a store, of which one of code not_found says no more than
// NotFound.
func OrNotFound(err error, what string) error {
	if sandbox.AsError(err).Code == sandbox.CodeNotFound {
		return NotFound(what)
	}
	return sandbox.AsError(err)
}
