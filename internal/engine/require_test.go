package engine_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// met says that a posture has what was required.
func met(i sandbox.Isolation, feature string) bool { return slices.Contains(i.Enforced, feature) }

// A fork that comes between choosing a pool and taking from it is not for a
// run that requires what no fork has.
func TestForkThatComesBetween(t *testing.T) {
	s, d := serveForks(t, pythons(1), nil)
	available := func() bool { p := s.Pools()[0]; return p.Available == 1 && p.Filling == 0 }
	eventually(t, "one waits", available)
	between := func() {}
	s.BeforeTake(func() { between() })
	for range 5 {
		d.Zygote(0).SetBusy(true)
		if _, err := s.Run(soon(t), python(sandbox.Spec{})); err != nil { // takes the one that waits
			t.Fatal(err)
		}
		eventually(t, "none waits", func() bool { return s.Pools()[0].Available == 0 })
		between = func() {
			d.Zygote(0).SetBusy(false)
			if _, err := s.SetPool(soon(t), pythons(1).Pools[0]); err != nil {
				t.Error(err)
			}
			eventually(t, "a fork comes", available)
		}
		r, err := s.Run(soon(t), python(sandbox.Spec{Require: []string{sandbox.FeatureASLR}}))
		if err != nil || !met(r.Isolation, sandbox.FeatureASLR) || r.Warm {
			t.Fatalf("a run that requires %s got %+v, %v", sandbox.FeatureASLR, r, err)
		}
		between = func() {}
		r, err = s.Run(soon(t), python(sandbox.Spec{}))
		if err != nil || met(r.Isolation, sandbox.FeatureASLR) || !r.Warm || r.Isolation.NotEnforced[len(r.Isolation.NotEnforced)-1].What != sandbox.FeatureASLR {
			t.Fatalf("the control, which requires nothing, got %+v, %v", r, err)
		}
		eventually(t, "one waits", available)
	}
}

// What waits in a pool enforces what could be enforced when it was made. A request
// is told that, and gets nothing that lacks what it requires.
func TestPostureOfWhatWaited(t *testing.T) {
	var can atomic.Bool
	d := fake.New(fake.Options{Report: func(r *driver.Report) {
		for i, f := range r.Findings {
			if f.Feature == sandbox.FeatureCPUs && !can.Load() {
				r.Findings[i].Answer, r.Findings[i].Because, r.Findings[i].Fix = driver.No, "scripted", sandbox.Text("wait")
			}
		}
	}})
	s := serve(t, engine.Options{Drivers: []driver.Driver{d}, Pools: []sandbox.PoolSpec{{Name: "plain", Min: 2}}}, nil)
	s.driver = d
	eventually(t, "two wait", func() bool { return s.Pools()[0].Available == 2 })
	require := []string{sandbox.FeatureCPUs}
	if _, err := s.Create(soon(t), "alice", sandbox.Create{Require: require}); code(err) != sandbox.CodeRequirementUnmet {
		t.Fatalf("a requirement that cannot be met: %v", err)
	}
	can.Store(true)
	s.ForgetProbes()
	x := s.create(t, sandbox.Create{Require: require})
	if i := x.Info(); !met(i.Isolation, sandbox.FeatureCPUs) || i.Warm {
		t.Errorf("living: warm %v, %+v", i.Warm, i.Isolation)
	}
	r, err := s.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "x", Require: require}, Tenant: "alice"})
	if err != nil || !met(r.Isolation, sandbox.FeatureCPUs) {
		t.Errorf("a run: %+v, %v", r, err)
	}
	x = s.create(t, sandbox.Create{})
	if i := x.Info(); met(i.Isolation, sandbox.FeatureCPUs) || !i.Warm {
		t.Errorf("the control, which requires nothing: warm %v, %+v", i.Warm, i.Isolation)
	}
}
