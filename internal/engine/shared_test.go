package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

func TestAdmission(t *testing.T) {
	s := serve(t, engine.Options{Capacity: admission.Capacity{Sandboxes: 2, Queue: 3, QueueTimeout: 300 * time.Millisecond}}, nil)
	a, b := s.create(t, sandbox.Create{}), s.create(t, sandbox.Create{})
	var wg sync.WaitGroup
	codes := make(chan string, 10)
	for range 10 {
		wg.Go(func() {
			_, err := s.Create(soon(t), "alice", sandbox.Create{})
			var again interface{ RetryAfter() time.Duration }
			if !errors.As(err, &again) || again.RetryAfter() <= 0 {
				t.Errorf("no time to come back: %v", err)
			}
			codes <- code(err)
		})
	}
	wg.Wait()
	close(codes)
	for c := range codes {
		if c != sandbox.CodeBusy {
			t.Errorf("code %s", c)
		}
	}
	ready := make(chan error, 1)
	go func() {
		_, err := s.Create(soon(t), "bob", sandbox.Create{})
		ready <- err
	}()
	eventually(t, "bob waits", func() bool { return s.Stats().Waiting == 1 })
	if _, err := a.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatalf("with room: %v", err)
	}
	if _, err := b.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// One tenant's long line does not delay another's single request.
func TestTurns(t *testing.T) {
	s := serve(t, engine.Options{Capacity: admission.Capacity{Sandboxes: 1, Queue: 100, QueueTimeout: time.Minute}}, nil)
	first := s.create(t, sandbox.Create{})
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	ask := func(tenant string) {
		wg.Go(func() {
			x, err := s.Create(soon(t), tenant, sandbox.Create{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, tenant)
			mu.Unlock()
			_, _ = x.Destroy(soon(t))
		})
	}
	for i := range 10 {
		ask("greedy")
		eventually(t, "in line", func() bool { return s.Stats().Waiting == i+1 })
	}
	ask("modest")
	eventually(t, "all in line", func() bool { return s.Stats().Waiting == 11 })
	if _, err := first.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, who := range order {
		if who == "modest" && i > 1 {
			t.Fatalf("the modest one came as number %d: %v", i, order)
		}
	}
}

func TestQuota(t *testing.T) {
	s := serve(t, engine.Options{Quota: func(tenant string) admission.Quota {
		if tenant == "small" {
			return admission.Quota{Sandboxes: 1, MemoryBytes: 512 << 20}
		}
		return admission.Quota{}
	}}, nil)
	x, err := s.Create(soon(t), "small", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(soon(t), "small", sandbox.Create{}); code(err) != sandbox.CodeQuotaExceeded {
		t.Fatalf("a second one: %v", err)
	}
	if _, err := s.Create(soon(t), "small", sandbox.Create{Limits: sandbox.Limits{MemoryBytes: 1 << 30}}); code(err) != sandbox.CodeQuotaExceeded {
		t.Fatalf("a large one: %v", err)
	}
	if _, err := s.Create(soon(t), "other", sandbox.Create{}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(soon(t), "small", sandbox.Create{}); err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
}

func TestPool(t *testing.T) {
	s := serve(t, engine.Options{Pools: []sandbox.PoolSpec{{Name: "default", Min: 3, Max: 5}}}, nil)
	pool := func() sandbox.PoolInfo { return s.Pools()[0] }
	full := func() bool { return pool().Available == 3 && pool().Filling == 0 }
	eventually(t, "the pool is full", full)
	x := s.create(t, sandbox.Create{})
	if !x.Info().Warm || pool().Hits != 1 || pool().InUse != 1 {
		t.Fatalf("%+v, %+v", x.Info(), pool())
	}
	cold := s.create(t, sandbox.Create{Limits: sandbox.Limits{MemoryBytes: 64 << 20}})
	if cold.Info().Warm {
		t.Fatal("another shape came from the pool")
	}
	eventually(t, "it fills again", full)
	for _, m := range s.driver.Machines() {
		if m.Plan.ID != "" && m.Plan.Limits.MemoryBytes == 256<<20 {
			m.Die(driver.Death{Kind: driver.DeathAgent, Evidence: "scripted"})
		}
	}
	if y := s.create(t, sandbox.Create{}); y.Info().Warm {
		t.Fatal("a dead machine was handed out")
	}
	eventually(t, "the dead are replaced", func() bool { return full() && pool().Replaced == 3 })
	r, err := s.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "x"}, Tenant: "alice"})
	if err != nil || r.ID == "" || pool().Hits != 2 {
		t.Fatalf("%+v, %v, %+v", r, err, pool())
	}
	if _, err := s.SetPool(soon(t), sandbox.PoolSpec{Name: "Bad Name"}); code(err) != sandbox.CodeSpecInvalid {
		t.Fatalf("a bad name: %v", err)
	}
	if err := s.RemovePool(soon(t), "default"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemovePool(soon(t), "default"); code(err) != sandbox.CodeNotFound {
		t.Fatalf("removed twice: %v", err)
	}
}

func TestPoolThatCannotBeFilled(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Create: func(context.Context) error { return errors.New("no room on the host") }}
	})
	if _, err := s.SetPool(soon(t), sandbox.PoolSpec{Name: "p", Min: 2}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reason shows", func() bool { return s.Pools()[0].Error != nil })
	if _, err := s.Create(soon(t), "alice", sandbox.Create{}); code(err) != sandbox.CodeSetupFailed {
		t.Fatalf("%v", err)
	}
	page, err := s.Sandboxes(soon(t), "alice", records.Query{})
	if err != nil || len(page.Items) != 1 || page.Items[0].State != sandbox.StateEnded || page.Items[0].Error == nil {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestIdempotency(t *testing.T) {
	var mu sync.Mutex
	ran := 0
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			mu.Lock()
			ran++
			mu.Unlock()
			time.Sleep(30 * time.Millisecond)
			return fake.Exit{Code: 4}
		}}
	})
	ask := func(tenant, key, program string) (*sandbox.Result, error) {
		return s.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: program}, Tenant: tenant, IdempotencyKey: key})
	}
	var wg sync.WaitGroup
	ids := make(chan string, 8)
	for range 8 {
		wg.Go(func() {
			r, err := ask("alice", "k1", "a")
			if err != nil {
				t.Error(err)
				return
			}
			ids <- r.ID
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != 1 || ran != 1 {
		t.Fatalf("%d results of %d runs", len(seen), ran)
	}
	if _, err := ask("alice", "k1", "b"); code(err) != sandbox.CodeIdempotency {
		t.Fatalf("another request: %v", err)
	}
	if r, err := ask("bob", "k1", "b"); err != nil || seen[r.ID] {
		t.Fatalf("another tenant: %+v, %v", r, err)
	}
	// The caller goes away; the run does not.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := s.Run(ctx, runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "c"}, Tenant: "alice", IdempotencyKey: "k2"}); err != nil {
		t.Fatal(err)
	}
	if r, err := ask("alice", "k2", "c"); err != nil || *r.ExitCode != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestRunsAreRecorded(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	var id string
	r, err := s.Run(soon(t), runs.Request{
		Spec: sandbox.Spec{Language: "sh", Code: "x", Metadata: map[string]string{"k": "v"}}, Tenant: "alice", Started: func(i string) { id = i },
	})
	if err != nil || r.ID != id {
		t.Fatalf("%+v, %v, %s", r, err, id)
	}
	rec, err := s.RunRecord(soon(t), "alice", id)
	if err != nil || rec.Result == nil || rec.Result.ID != id || rec.Metadata["k"] != "v" {
		t.Fatalf("%+v, %v", rec, err)
	}
	if _, err := s.RunRecord(soon(t), "bob", id); code(err) != sandbox.CodeNotFound {
		t.Fatalf("another tenant's: %v", err)
	}
	page, err := s.Runs(soon(t), "alice", records.Query{})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	days, err := s.Usage(soon(t), "alice", time.Now().Add(-24*time.Hour), time.Now())
	if err != nil || len(days) != 1 || days[0].Runs != 1 {
		t.Fatalf("%+v, %v", days, err)
	}
}

// What an earlier process had going is reported as lost, once.
func TestRecovery(t *testing.T) {
	store := memstore.New(memstore.Options{})
	now := time.Now().UTC()
	for i, state := range []sandbox.State{sandbox.StateCreating, sandbox.StateRunning, sandbox.StateEnding} {
		info := sandbox.Info{ID: fmt.Sprintf("sbx_%d", i), State: state, CreatedAt: now}
		if err := store.SaveSandbox(t.Context(), "alice", info); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.BeginRun(t.Context(), records.Run{ID: "run_1", Tenant: "alice", CreatedAt: now, Language: "sh", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	var ended []time.Time
	for range 2 {
		s := serve(t, engine.Options{Store: store}, nil)
		for i := range 3 {
			info, err := s.SandboxInfo(soon(t), "alice", fmt.Sprintf("sbx_%d", i))
			if err != nil || info.State != sandbox.StateEnded || info.Cause.Kind != sandbox.CauseLost {
				t.Fatalf("%+v, %v", info, err)
			}
			ended = append(ended, *info.EndedAt)
		}
		rec, err := s.RunRecord(soon(t), "alice", "run_1")
		if err != nil || rec.Result == nil || rec.Result.Cause.Kind != sandbox.CauseLost || rec.Result.Status != sandbox.StatusError {
			t.Fatalf("%+v, %v", rec, err)
		}
	}
	if !ended[0].Equal(ended[3]) {
		t.Fatal("lost twice")
	}
}

func TestDrain(t *testing.T) {
	s := serve(t, engine.Options{Pools: []sandbox.PoolSpec{{Name: "p", Min: 2}}}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			select {
			case <-p.Killed:
				return fake.Exit{Signal: 9}
			case <-time.After(200 * time.Millisecond):
				return fake.Exit{}
			}
		}}
	})
	x := s.create(t, sandbox.Create{})
	results := make(chan *sandbox.Result, 1)
	go func() {
		r, err := s.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "x"}})
		if err != nil {
			t.Error(err)
		}
		results <- r
	}()
	eventually(t, "the run goes on", func() bool { return s.Stats().Runs == 1 })
	if err := s.Drain(soon(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-results; r.Status != sandbox.StatusSucceeded {
		t.Fatalf("the run was not let finish: %+v", r)
	}
	if info := x.Info(); info.State != sandbox.StateEnded {
		t.Fatalf("%+v", info)
	}
	if err := s.Ready(t.Context()); code(err) != sandbox.CodeShuttingDown {
		t.Fatalf("Ready: %v", err)
	}
	if _, err := s.Create(soon(t), "alice", sandbox.Create{}); code(err) != sandbox.CodeShuttingDown {
		t.Fatalf("Create: %v", err)
	}
	eventually(t, "the pool is gone", func() bool { return s.driver.Living() == 0 })
}

// A destruction that fails is tried again, and shows meanwhile.
func TestDestroyIsTriedAgain(t *testing.T) {
	var mu sync.Mutex
	failures := 1
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Destroy: func() error {
			mu.Lock()
			defer mu.Unlock()
			if failures > 0 {
				failures--
				return errors.New("device busy")
			}
			return nil
		}}
	})
	x := s.create(t, sandbox.Create{})
	done := make(chan struct{})
	go func() { defer close(done); _, _ = x.Destroy(soon(t)) }()
	eventually(t, "it shows", func() bool { return s.Stats().Undestroyed == 1 })
	<-done
	if x.Info().State != sandbox.StateEnded || s.Stats().Undestroyed != 0 {
		t.Fatalf("%+v %+v", x.Info(), s.Stats())
	}
}
