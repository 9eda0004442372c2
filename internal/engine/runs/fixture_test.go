package runs

import (
	"context"
	"log/slog"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/planner"
	"pinfold/internal/engine/pool"
	"pinfold/internal/image"
	"pinfold/internal/processors"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// hostFiles is a host with a shell and a compiler.
func hostFiles() fstest.MapFS {
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	return fstest.MapFS{"usr/bin/sh": program, "usr/bin/gcc": program}
}

// newRunner makes a runner over machines of memory. When the test ends nothing of them
// may be left.
func newRunner(t *testing.T, host fstest.MapFS, cache *compilecache.Cache, script func(driver.Plan) fake.Script) (*Runner, *fake.Driver) {
	t.Helper()
	ledger.CheckSelf(t)
	template, err := image.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d := fake.New(fake.Options{Script: script})
	plans := planner.New([]driver.Driver{d}, func(string) (image.Template, error) { return template, nil }, host)
	pools := pool.New(pool.Options{Planner: plans, Log: log})
	rn := New(Options{
		Gate: admission.NewGate(admission.Capacity{}, nil), Planner: plans, Pools: pools, Processors: &processors.Shares{},
		Cache: cache, Host: host, Observer: unobserved{}, Log: log,
	})
	t.Cleanup(func() {
		rn.Drain(context.Background())
		rn.Close()
		pools.Close()
		if n := d.Living(); n > 0 {
			t.Errorf("%d machines live", n)
		}
	})
	return rn, d
}

// run runs a request that must give a result within some seconds.
func run(t *testing.T, rn *Runner, req Request) *sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := rn.Run(ctx, req)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return r
}

// says returns a program that writes to both streams.
func says(stdout, stderr string) func(*fake.Process) fake.Exit {
	return func(p *fake.Process) fake.Exit {
		_, _ = p.Stdout.Write([]byte(stdout))
		_, _ = p.Stderr.Write([]byte(stderr))
		return fake.Exit{}
	}
}

// exits returns a program that ends so at once.
func exits(e fake.Exit) func(*fake.Process) fake.Exit {
	return func(*fake.Process) fake.Exit { return e }
}

// later gives the counters once the machine has lived for a moment, and zeros before.
func later(u driver.Usage) func(time.Duration) driver.Usage {
	return func(life time.Duration) driver.Usage {
		if life < 10*time.Millisecond {
			return driver.Usage{}
		}
		return u
	}
}

// unobserved is an Observer that is told everything and does nothing.
type unobserved struct{}

func (unobserved) RunStarted(string)           {}
func (unobserved) RunFinished(*sandbox.Result) {}
func (unobserved) Queued(time.Duration)        {}
func (unobserved) Refused(string)              {}
