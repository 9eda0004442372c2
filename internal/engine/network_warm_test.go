package engine

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// withPool is an engine with a machine that waits.
func withPool(t *testing.T, script func(driver.Plan) fake.Script) *Engine {
	t.Helper()
	engine, _ := newEngine(t, script, theirOwn, func(o *Options) { o.Pools = []sandbox.PoolSpec{{Name: "p", Min: 1}} })
	if err := engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return engine
}

// waiting waits until the pool's machine waits.
func waiting(t *testing.T, e *Engine) {
	t.Helper()
	for begun := time.Now(); e.Pools()[0].Available == 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%+v", e.Pools())
		}
	}
}

// A machine that waits in a pool is given the endpoints of whoever gets it, and enforces what
// one does that was made with them.
func TestWaitingMachineReachesWhatIsDeclared(t *testing.T) {
	e, _ := echo(t)
	engine := withPool(t, always(talks(e)))
	waiting(t, engine)
	box, err := engine.Create(t.Context(), "local", sandbox.Create{Network: declaring(e)})
	if err != nil {
		t.Fatal(err)
	}
	info := box.Info()
	if !info.Warm || info.Network == nil || len(info.Network.Endpoints) != 1 || !slices.Contains(info.Isolation.Enforced, sandbox.FeatureNetwork) ||
		slices.Contains(info.Isolation.Enforced, sandbox.FeatureNetworkNone) {
		t.Errorf("%+v", info)
	}
	if info, err = box.Destroy(t.Context()); err != nil || info.Network == nil {
		t.Errorf("%+v %v", info, err)
	}
	waiting(t, engine)
	hits := engine.Pools()[0].Hits
	req := shell(sandbox.Limits{})
	req.Spec.Network, req.Spec.Require = declaring(e), []string{sandbox.FeatureNetwork}
	r := run(t, engine, req)
	if r.ExitCode == nil || *r.ExitCode != 1 || r.Network == nil || r.Network.Endpoints[0].BytesUp != 6 || len(r.Network.Denied) != 1 {
		t.Errorf("%+v %+v", r, r.Network)
	}
	if now := engine.Pools()[0].Hits; now != hits+1 {
		t.Errorf("%d hits after %d", now, hits)
	}
	waiting(t, engine)
	req.Spec.Require = []string{sandbox.FeatureNetworkNone}
	if _, err := engine.Run(t.Context(), req); sandbox.AsError(err).Code != sandbox.CodeRequirementUnmet {
		t.Error(err)
	}
}

// A machine that cannot be given endpoints goes, and the request gets one that is made for it.
func TestWaitingMachineWithoutWayIsReplaced(t *testing.T) {
	e, _ := echo(t)
	for name, test := range map[string]struct {
		script   fake.Script
		replaced bool
	}{
		"it fails":  {fake.Script{AddDoors: func() error { return errors.New("taken") }}, true},
		"it cannot": {fake.Script{NoLateDoors: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var made atomic.Int64
			engine := withPool(t, func(driver.Plan) fake.Script {
				made.Add(1)
				s := test.script
				s.Program = talks(e).Program
				return s
			})
			waiting(t, engine)
			before := made.Load()
			req := shell(sandbox.Limits{})
			req.Spec.Network = declaring(e)
			if r := run(t, engine, req); r.ExitCode == nil || *r.ExitCode != 1 || r.Network == nil {
				t.Errorf("%+v", r)
			}
			waiting(t, engine)
			want := before + 1 // the run's own
			if test.replaced {
				want++
			}
			if n := made.Load(); n != want {
				t.Errorf("%d machines were made after %d, not %d", n-before, before, want-before)
			}
			p := engine.Pools()[0]
			if replaced := p.Replaced == 1; p.Hits != 0 || p.Misses != 1 || p.InUse != 0 || replaced != test.replaced {
				t.Errorf("it served nobody: %+v", p)
			}
		})
	}
}

// What reads requests needs an authority that programs trust from their start: a machine that
// waits has none.
func TestRequestsAreReadCold(t *testing.T) {
	e, _ := echo(t)
	e.Paths = []string{"/**"}
	engine := withPool(t, always(talks(e)))
	waiting(t, engine)
	box, err := engine.Create(t.Context(), "local", sandbox.Create{Network: declaring(e)})
	if err != nil {
		t.Fatal(err)
	}
	if info := box.Info(); info.Warm {
		t.Errorf("%+v", info)
	}
	if _, err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
