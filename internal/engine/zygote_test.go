package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/runs"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
	"pinfold/test/lockedbuffer"
)

// serveForks is an engine over machines whose interpreters are forked. start is called for
// each zygote; nil makes one at once.
func serveForks(t *testing.T, o engine.Options, start func(context.Context) error) (*served, *fake.Driver) {
	t.Helper()
	if start == nil {
		start = func(context.Context) error { return nil }
	}
	d := fake.New(fake.Options{Script: func(driver.Plan) fake.Script { return fake.Script{Program: waits} }, Zygote: start})
	o.Drivers = []driver.Driver{d}
	s := serve(t, o, nil)
	s.driver = d
	return s, d
}

func pythons(n int) engine.Options {
	return engine.Options{Pools: []sandbox.PoolSpec{{Name: "py", Language: "python", Min: n}}}
}

// Each request counts once, as what it was.
func TestForksAtOnceAreNoMisses(t *testing.T) {
	s, d := serveForks(t, pythons(1), nil)
	pool := func() sandbox.PoolInfo { return s.Pools()[0] }
	eventually(t, "one waits", func() bool { return pool().Available == 1 && pool().Filling == 0 })
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if r, err := s.Run(soon(t), python(sandbox.Spec{})); err != nil || !r.Warm || r.Stdout != "forked print(1)" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if p := pool(); p.Hits+p.Forked != 12 || p.Hits == 0 || p.Forked == 0 || p.Misses != 0 {
		t.Errorf("%d hits, %d forked, %d misses", p.Hits, p.Forked, p.Misses)
	}
	d.Zygote(0).SetBusy(true)
	before := pool()
	cold := 0
	for range 20 {
		r, err := s.Run(soon(t), python(sandbox.Spec{}))
		if err != nil {
			t.Fatal(err)
		}
		if !r.Warm {
			cold++
		}
	}
	p := pool()
	if misses := p.Misses - before.Misses; cold == 0 || misses != int64(cold) || p.Hits-before.Hits != int64(20-cold) || p.Forked != before.Forked {
		t.Errorf("%d cold: %+v after %+v", cold, p, before)
	}
}

// A pool says at once that the zygote of its interpreters is dead, and has
// another one soon.
func TestZygoteThatDies(t *testing.T) {
	s, d := serveForks(t, pythons(3), nil)
	pool := func() sandbox.PoolInfo { return s.Pools()[0] }
	full := func() bool { p := pool(); return p.Available == 3 && p.Filling == 0 && p.Interpreters == "forked" }
	eventually(t, "the pool is full", full)
	d.Zygote(0).Die()
	if p := pool(); p.Available != 0 || p.Interpreters != "" {
		t.Errorf("right after its death: %+v", p)
	}
	eventually(t, "there is another one", func() bool { return d.Zygote(1) != nil && full() && pool().Error == nil })
	if p := pool(); p.Replaced != 3 {
		t.Errorf("%+v", p)
	}
}

// A zygote that grows makes no more forks; those that it made live on.
func TestZygoteThatGrowsIsReplaced(t *testing.T) {
	s, d := serveForks(t, pythons(1), nil)
	eventually(t, "one waits", func() bool { return s.Pools()[0].Available == 1 })
	run := func() {
		t.Helper()
		if _, err := s.Run(soon(t), python(sandbox.Spec{})); err != nil {
			t.Fatal(err)
		}
	}
	d.Zygote(0).SetMemory(60 << 20)
	time.Sleep(1100 * time.Millisecond) // until its memory is read again
	run()
	eventually(t, "one waits again", func() bool { return s.Pools()[0].Available == 1 })
	if d.Zygote(1) != nil {
		t.Fatal("a zygote that grew a little was replaced")
	}
	d.Zygote(0).SetMemory(70 << 20)
	time.Sleep(1100 * time.Millisecond)
	run()
	eventually(t, "there is another one", func() bool { return d.Zygote(1) != nil })
	run() // with the fork of the old one that waited, or one of the new
	eventually(t, "the old one is ended", func() bool {
		run()
		select {
		case <-d.Zygote(0).Dead():
			return true
		default:
			return false
		}
	})
	if p := s.Pools()[0]; p.Error != nil {
		t.Errorf("%+v", p.Error)
	}
}

// A pool that cannot be filled is tried by one filler, less and less often, says
// when next, and is in the log once.
func TestFailingPoolIsQuiet(t *testing.T) {
	var log lockedbuffer.Buffer
	var tries atomic.Int64
	var broken atomic.Bool
	broken.Store(true)
	s, _ := serveForks(t, engine.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(context.Context) error {
		if broken.Load() {
			return &zygote.UnfitError{Why: fmt.Sprintf("ModuleNotFoundError, try %d", tries.Add(1)), Load: true}
		}
		return nil
	})
	set := func() {
		t.Helper()
		if _, err := s.SetPool(soon(t), sandbox.PoolSpec{Name: "p", Language: "python", Warm: []string{"nothere"}, Min: 4}); err != nil {
			t.Fatal(err)
		}
	}
	set()
	time.Sleep(1200 * time.Millisecond) // tries at 0, 0.1, 0.3, 0.7, 1.5 s
	if n := tries.Load(); n < 3 || n > 5 {
		t.Errorf("%d tries", n)
	}
	p := s.Pools()[0]
	if p.Error == nil || p.RetryAt == nil || time.Until(*p.RetryAt) <= 0 || time.Until(*p.RetryAt) > 2*time.Second {
		t.Errorf("%+v, again at %v", p.Error, p.RetryAt)
	}
	r, err := s.Run(soon(t), python(sandbox.Spec{Warm: []string{"nothere"}}))
	if err != nil || r.Warm || !strings.Contains(r.ColdBecause, "ModuleNotFoundError") {
		t.Errorf("%+v, %v", r, err)
	}
	broken.Store(false)
	set() // somebody who has mended it need not wait
	eventually(t, "it is full", func() bool { p := s.Pools()[0]; return p.Available == 4 && p.Error == nil && p.RetryAt == nil })
	if text := log.String(); strings.Count(text, "cannot fill a pool") != 1 {
		t.Errorf("the log:\n%s", text)
	}
}

// A pool that mends itself says so, once.
func TestPoolThatRecovers(t *testing.T) {
	var log lockedbuffer.Buffer
	var tries atomic.Int64
	s, _ := serveForks(t, engine.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(context.Context) error {
		if tries.Add(1) < 3 {
			return errors.New("no room")
		}
		return nil
	})
	if _, err := s.SetPool(soon(t), sandbox.PoolSpec{Name: "p", Language: "python"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is filled", func() bool {
		p := s.Pools()[0]
		return p.Available == sandbox.DefaultPoolMin && p.Min == sandbox.DefaultPoolMin
	})
	if text := log.String(); strings.Count(text, "cannot fill") != 1 || strings.Count(text, "can be filled again") != 1 {
		t.Errorf("the log:\n%s", text)
	}
}

// A tenant that asks for every place gives some up when another one asks, and no
// more than half.
func TestPlacesForAskedPoolsAreShared(t *testing.T) {
	s, _ := serveForks(t, engine.Options{}, nil)
	ask := func(tenant, module string) *sandbox.Result {
		t.Helper()
		r := python(sandbox.Spec{Warm: []string{module}})
		r.Tenant = tenant
		got, err := s.Run(soon(t), r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	warm := func() map[string]int {
		of := map[string]int{}
		for _, p := range s.Pools() {
			of[p.Warm[0][:1]]++
		}
		return of
	}
	for i := range 8 {
		if r := ask("greedy", fmt.Sprintf("g%d", i)); !r.Warm || r.ColdBecause != "" {
			t.Fatalf("%+v", r)
		}
	}
	if r := ask("greedy", "g8"); r.Warm || !strings.Contains(r.ColdBecause, "all places") {
		t.Errorf("a ninth: %+v", r)
	}
	ask("greedy", "g0") // so that it is not the one unused for longest
	for i := range 4 {
		if r := ask("modest", fmt.Sprintf("m%d", i)); !r.Warm {
			t.Fatalf("the modest one's number %d: %+v", i, r)
		}
	}
	if of := warm(); of["g"] != 4 || of["m"] != 4 {
		t.Errorf("%v", of)
	}
	for _, test := range []struct{ tenant, module string }{{"modest", "m4"}, {"greedy", "g9"}} {
		if r := ask(test.tenant, test.module); r.Warm || r.ColdBecause == "" {
			t.Errorf("beyond their share: %+v", r)
		}
	}
	if r := ask("modest", "g0"); !r.Warm {
		t.Errorf("what another one asked for serves all: %+v", r)
	}
	if r := ask("third", "t"); !r.Warm {
		t.Errorf("a third tenant: %+v", r)
	}
	if of := warm(); of["g"]+of["m"] != 7 || of["t"] != 1 {
		t.Errorf("%v", of)
	}
}

// Where a run asked for modules and got a cold start, it is told why.
func TestWhyCold(t *testing.T) {
	s, _ := serveForks(t, engine.Options{}, nil)
	for _, test := range []struct {
		why  string
		spec sandbox.Spec
	}{
		{"", sandbox.Spec{}},
		{"limit of open files", sandbox.Spec{Limits: sandbox.Limits{OpenFiles: 77}}},
		{"limit of file size", sandbox.Spec{Limits: sandbox.Limits{FileSizeBytes: 1 << 20}}},
		{"PYTHONHASHSEED", sandbox.Spec{Env: map[string]string{"PYTHONHASHSEED": "1"}}},
		{"aslr:fresh", sandbox.Spec{Require: []string{sandbox.FeatureASLR}}},
	} {
		test.spec.Warm = []string{"json"}
		r, err := s.Run(soon(t), python(test.spec))
		if err != nil || r.Warm != (test.why == "") || !strings.Contains(r.ColdBecause, test.why) || r.Warm != (r.ColdBecause == "") {
			t.Errorf("%q: %+v, %v", test.why, r, err)
		}
	}
	r, err := s.Run(soon(t), python(sandbox.Spec{Env: map[string]string{"PYTHONHASHSEED": "1"}}))
	if err != nil || r.ColdBecause != "" {
		t.Errorf("who asked for nothing: %+v, %v", r, err)
	}
	_, err = s.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "x", Warm: []string{"json"}}, Tenant: "alice"})
	if e := sandbox.AsError(err); err == nil || e.Code != sandbox.CodeSpecInvalid || e.Field != "warm" || e.Hint == "" {
		t.Errorf("a language that has none: %v", err)
	}
}

// An interpreter that is forked for a run reaches what the run declares, also where its
// requests are read: its machine is made for it.
func TestForkedInterpreterReachesWhatIsDeclared(t *testing.T) {
	o := pythons(1)
	o.Policy.Network = admission.Network{Own: true}
	s, _ := serveForks(t, o, nil)
	pool := func() sandbox.PoolInfo { return s.Pools()[0] }
	for _, test := range []struct {
		name  string
		paths []string
		hits  int64
	}{{"from a machine that waits", nil, 1}, {"from a machine that is made", []string{"/**"}, 0}} {
		t.Run(test.name, func(t *testing.T) {
			eventually(t, "one waits", func() bool { return pool().Available == 1 && pool().Filling == 0 })
			before := pool()
			network := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Address: "127.0.0.1", Paths: test.paths}}}
			r, err := s.Run(soon(t), python(sandbox.Spec{Network: network}))
			if err != nil || !r.Warm || r.Network == nil || !slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetwork) {
				t.Errorf("%+v, %v", r, err)
			}
			if now := pool(); now.Hits-before.Hits != test.hits || now.Forked-before.Forked != 1-test.hits {
				t.Errorf("%+v after %+v", now, before)
			}
		})
	}
}

// Modules that make an SSL context while they are loaded have read whom to trust: where
// requests are read they are loaded anew.
func TestLoadedModulesDoNotKnowTheAuthority(t *testing.T) {
	o := engine.Options{}
	o.Policy.Network = admission.Network{Own: true}
	s, _ := serveForks(t, o, nil)
	for _, paths := range [][]string{nil, {"/**"}} {
		network := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Address: "127.0.0.1", Paths: paths}}}
		r, err := s.Run(soon(t), python(sandbox.Spec{Network: network, Warm: []string{"m"}}))
		if err != nil || r.Warm != (paths == nil) || r.Network == nil || strings.Contains(r.ColdBecause, "authority") != (paths != nil) {
			t.Errorf("%v: %+v, %v", paths, r, err)
		}
	}
}

// An interpreter that was started serves what is passed through; where requests are read the
// result says why another one was started.
func TestStartedInterpreterReachesWhatIsDeclared(t *testing.T) {
	o := engine.Options{Pools: []sandbox.PoolSpec{{Name: "py", Language: "python", Warm: []string{"m"}, Min: 1}}}
	o.Policy.Network = admission.Network{Own: true}
	s := serve(t, o, func(driver.Plan) fake.Script { return fake.Script{Program: waits} })
	for _, paths := range [][]string{nil, {"/**"}} {
		eventually(t, "one waits", func() bool { p := s.Pools()[0]; return p.Available == 1 && p.Filling == 0 })
		network := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Address: "127.0.0.1", Paths: paths}}}
		r, err := s.Run(soon(t), python(sandbox.Spec{Network: network, Warm: []string{"m"}}))
		if err != nil || r.Warm != (paths == nil) || r.Network == nil || strings.Contains(r.ColdBecause, "authority") != (paths != nil) {
			t.Errorf("%v: %+v, %v", paths, r, err)
		}
	}
}

// A run whose requests are read does not wait for interpreters that are started: it could not
// have one.
func TestReadRequestsDoNotWaitForStartedInterpreters(t *testing.T) {
	loaded := make(chan struct{})
	o := engine.Options{Pools: []sandbox.PoolSpec{{Name: "py", Language: "python", Warm: []string{"slow"}, Min: 1}}}
	o.Policy.Network = admission.Network{Own: true}
	s := serve(t, o, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			if slices.Contains(p.Args, "slow") {
				<-loaded
			}
			return waits(p)
		}}
	})
	t.Cleanup(func() { close(loaded) }) // before the engine's end, which waits for them
	eventually(t, "they are started", func() bool { p := s.Pools()[0]; return p.Filling > 0 && p.Interpreters == "started" })
	network := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Address: "127.0.0.1", Paths: []string{"/**"}}}}
	begun := time.Now()
	r, err := s.Run(soon(t), python(sandbox.Spec{Network: network, Warm: []string{"slow"}}))
	if took := time.Since(begun); err != nil || r.Warm || !strings.Contains(r.ColdBecause, "authority") || took > 15*time.Second {
		t.Errorf("after %v: %+v, %v", took, r, err)
	}
}
