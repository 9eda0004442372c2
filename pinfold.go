// Package pinfold runs code nobody has read in sandboxes of this process, and
// says honestly what happened. It has the types of package sandbox and the
// method names of package client, which asks a server instead.
//
//	local, err := pinfold.Open(ctx, pinfold.Options{})
//	if err != nil {
//		return err
//	}
//	defer local.Close()
//	result, err := local.Run(ctx, sandbox.Spec{Language: "python", Code: "print(6*7)"}, pinfold.RunOptions{})
//
// It works on Linux; elsewhere Open says so. Sandboxes need Pinfold's agent,
// which is their process 1. The program "pinfold" carries it inside; any other
// program finds it as a file named pinfold-agent beside its own executable, or
// where Options.Agent says:
//
//	CGO_ENABLED=0 go build -o pinfold-agent pinfold/cmd/pinfold-agent
//
// Sandboxes do not outlive this process. What was promised about a sandbox when
// it was made holds to its end; what the host could not enforce is said in
// Info.Isolation and Result.Isolation.
//
// Errors are *sandbox.Error, with a code, a message and a hint, which names fields as
// JSON does; its Advice, where there is one, prints as Go. Everything here is safe for
// concurrent use.
package pinfold

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"pinfold/client"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/secret"
	"pinfold/internal/store"
	"pinfold/internal/store/memstore"
	"pinfold/internal/wiring"
	"pinfold/sandbox"
)

// Options say how a Local works. The zero value is ready for use.
type Options struct {
	// StateDir keeps what must outlive this process: descriptions, results,
	// usage, idempotency keys. One process at a time can have it. Empty keeps
	// the newest thousand of each in memory.
	StateDir string
	// Agent is the absolute path of the agent's executable, where it does not
	// lie beside this program's. Whoever can write there decides what runs as
	// process 1 of every sandbox.
	Agent string
	// Images is the directory of the templates that are images: "templates" below what
	// `pinfold template` is given as --state. Empty: that of StateDir.
	Images string
	// Capacity bounds everything together.
	Capacity Capacity
	// Pools are kept filled with warm sandboxes.
	Pools []sandbox.PoolSpec
	// Secrets are what endpoints may name, by name.
	Secrets map[string]sandbox.SetSecret
	// Retention is how long records of what has ended are kept in StateDir;
	// zero means for ever.
	Retention time.Duration
	// Log receives what concerns the operator; nil means nobody.
	Log *slog.Logger
}

// Capacity bounds what is alive at once. A zero field means a default that
// suits the machine.
type Capacity struct {
	Sandboxes       int           // living at once, those of runs included
	Runs            int           // at once
	MemoryBytes     int64         // the sum of the memory limits
	CPUs            float64       // the sum of the CPU limits
	StartsPerSecond float64       // sandboxes made
	Queue           int           // requests that may wait
	QueueTimeout    time.Duration // how long one may wait
	Detached        int           // runs that nobody waits for, waiting and running
}

// RunOptions and the other types here are those of package client, so that a
// program can be written for either.
type (
	// RunOptions say what else to do with a run.
	RunOptions = client.RunOptions
	// ExecOptions are the streams of a command.
	ExecOptions = client.ExecOptions
	// OutputOptions say which output of a process is wanted.
	OutputOptions = client.OutputOptions
	// StartOptions say what else to do with a run that is started.
	StartOptions = client.StartOptions
	// WatchOptions say what of a run is wanted.
	WatchOptions = client.WatchOptions
	// Filter selects what a list returns.
	Filter = client.Filter
	// RunRecord is what is kept of a run.
	RunRecord = client.RunRecord
	// Language is one language.
	Language = client.Language
	// Day is what was used on one day.
	Day = client.Day
	// Archived says what was packed or unpacked.
	Archived = client.Archived
)

// Local is an engine in this process. Close it.
type Local struct {
	engine *engine.Engine
	images string // the directory of images; "": there is none
	store  closer // nil: in memory

	once   sync.Once
	closed error // of the one time
}

type closer interface{ Close() error }

// Open makes this process ready to run sandboxes. What an earlier, dead process
// left on the host is removed first, and what it had going is recorded as lost.
func Open(ctx context.Context, o Options) (*Local, error) {
	if err := wiring.CheckAgent(o.Agent); err != nil {
		return nil, withAgentHint(err)
	}
	secrets, err := secret.NewFixed(o.Secrets)
	if err != nil {
		return nil, err
	}
	l := &Local{images: o.images()}
	options := engine.Options{
		Store: memstore.New(memstore.Options{}), Capacity: admission.Capacity(o.Capacity), Pools: o.Pools, Retention: o.Retention, Log: o.Log,
		Secrets: secrets, Policy: admission.Policy{Network: admission.Network{Own: true}}, // the program that has the engine is its operator
	}
	if o.StateDir != "" {
		s, err := store.Open(ctx, o.StateDir)
		if err != nil {
			return nil, err
		}
		l.store, options.Store = s, s
		options.Snapshots.Dir = filepath.Join(s.Dir(), "snapshots")
	}
	if l.engine, err = wiring.NewEngine(options, wiring.Parts{Agent: o.Agent, Images: o.images()}); err != nil {
		return nil, joined(err, l.closeStore())
	}
	if err := l.engine.Open(ctx); err != nil {
		return nil, joined(sandbox.AsError(err), l.Close())
	}
	return l, nil
}

func (o Options) images() string {
	if o.Images == "" && o.StateDir != "" {
		return filepath.Join(o.StateDir, "templates")
	}
	return o.Images
}

// withAgentHint says to the author of a program where its agent comes from.
func withAgentHint(err error) error {
	e := sandbox.AsError(err)
	if e.Code != sandbox.CodeResourceUnavailable {
		return e
	}
	self, err := os.Executable()
	if err != nil {
		self = "this program"
	}
	if info, ok := debug.ReadBuildInfo(); ok && byGoRun(self) {
		return e.WithField("Agent").WithHint(fmt.Sprintf(
			"\"go run\" leaves the program alone in a directory of its own; build both: CGO_ENABLED=0 go build -o . %s pinfold/cmd/pinfold-agent && ./%s", info.Path, filepath.Base(self)))
	}
	return e.WithField("Agent").WithHint(fmt.Sprintf(
		"CGO_ENABLED=0 go build -o pinfold-agent pinfold/cmd/pinfold-agent, then put it beside %s or name it in Options.Agent", sandbox.SafeText(self, 200)))
}

// cached is the name of a directory in Go's cache of what it has built.
var cached = regexp.MustCompile(`^[0-9a-f]{64}-d$`)

// byGoRun says whether a program lies where "go run" makes it, or keeps it.
func byGoRun(self string) bool {
	dir := filepath.Dir(self)
	return filepath.Base(dir) == "exe" && strings.Contains(dir, "go-build") || cached.MatchString(filepath.Base(dir))
}

// joined keeps the first error, which is the one to act upon.
func joined(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// Close cancels the runs that are under way, destroys all sandboxes and frees
// everything. When it returns nil, nothing is left on the host.
func (l *Local) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return l.close(now)
}

// Shutdown is Close, except that runs which are under way may finish until ctx
// ends.
func (l *Local) Shutdown(ctx context.Context) error { return l.close(ctx) }

// close may be called again, also while another call waits for runs: it hurries that.
func (l *Local) close(ctx context.Context) error {
	err := l.engine.Drain(ctx)
	l.once.Do(func() { l.closed = joined(l.engine.Close(), l.closeStore()) })
	return joined(err, l.closed)
}

func (l *Local) closeStore() error {
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}

// Run runs one program in a fresh sandbox and returns what became of it. The
// error is nil whenever the program was started. When ctx ends, the sandbox is
// destroyed at once and the result's cause is "cancelled", unless there is an
// idempotency key. When Run returns, nothing of the sandbox is left.
//
// Unlike a server, it also takes Spec.Mounts.
func (l *Local) Run(ctx context.Context, s sandbox.Spec, o RunOptions) (*sandbox.Result, error) {
	return l.engine.Run(ctx, runs.Request{
		Spec: s, Tenant: records.LocalTenant, IdempotencyKey: o.IdempotencyKey,
		Streams: execution.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}, Artifact: o.Artifact, NoArtifacts: true,
	})
}

// Languages lists the languages, and which of them this host has. The first
// call asks each of them for its version, in a sandbox.
func (l *Local) Languages(ctx context.Context) ([]Language, error) {
	all, err := l.engine.Languages(ctx)
	var out []Language
	for _, i := range all {
		out = append(out, Language(i))
	}
	return out, err
}

// Templates lists the names of the templates.
func (l *Local) Templates(ctx context.Context) ([]string, error) { return l.engine.Templates(ctx) }

// Pools lists the pools of warm sandboxes and how they do.
func (l *Local) Pools(context.Context) ([]sandbox.PoolInfo, error) { return l.engine.Pools(), nil }

// SetPool adds a pool or changes the one of that name.
func (l *Local) SetPool(ctx context.Context, p sandbox.PoolSpec) (sandbox.PoolInfo, error) {
	return l.engine.SetPool(ctx, p)
}

// RemovePool ends a pool. Sandboxes that it has handed out live on.
func (l *Local) RemovePool(ctx context.Context, name string) error {
	return l.engine.RemovePool(ctx, name)
}

// Usage returns what was used on the days from and to, both included, in UTC. A
// zero to means today, a zero from thirty days before.
func (l *Local) Usage(ctx context.Context, from, to time.Time) ([]Day, error) {
	if to.IsZero() {
		to = time.Now().UTC()
	}
	if from.IsZero() {
		from = to.AddDate(0, 0, -30)
	}
	all, err := l.engine.Usage(ctx, records.LocalTenant, from, to)
	var days []Day
	for _, d := range all {
		days = append(days, Day{
			Day: d.Day, Runs: d.Runs, Sandboxes: d.Sandboxes, CPUMS: d.CPUMS, WallMS: d.WallMS, MemoryMiBMS: d.MemoryMiBMS,
			OutputBytes: d.OutputBytes, ArtifactBytes: d.ArtifactBytes,
		})
	}
	return days, err
}
