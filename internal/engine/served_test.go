package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/image"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// served is an engine as a server has it, over machines of memory.
type served struct {
	*engine.Engine
	driver *fake.Driver
	store  *memstore.Store
}

func serve(t *testing.T, o engine.Options, script func(driver.Plan) fake.Script) *served {
	t.Helper()
	ledger.CheckSelf(t)
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	host := fstest.MapFS{"usr/bin/sh": program}
	template, err := image.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{driver: fake.New(fake.Options{Script: script}), store: memstore.New(memstore.Options{})}
	if o.Store == nil {
		o.Store = s.store
	}
	o.Drivers, o.Host = []driver.Driver{s.driver}, host
	o.Template = func(string) (image.Template, error) { return template, nil }
	s.Engine = engine.New(o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := s.driver.Living(); n > 0 {
			t.Errorf("%d machines live", n)
		}
	})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *served) create(t *testing.T, c sandbox.Create) *engine.Sandbox {
	t.Helper()
	x, err := s.Create(soon(t), "alice", c)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return x
}

// soon bounds what a test waits for.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return sandbox.AsError(err).Code
}

// eventually waits for what must come about by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLife(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{Metadata: map[string]string{"task": "7"}})
	if got := x.Info(); got.State != sandbox.StateRunning || got.Metadata["task"] != "7" || got.Isolation.Driver != "fake" {
		t.Fatalf("%+v", got)
	}
	p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"echo", "hello"}}, engine.Streams{})
	if err != nil || p.Stdout != "hello\n" || p.Status != sandbox.StatusSucceeded || p.Running || *p.ExitCode != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err = x.Exec(soon(t), sandbox.Command{Args: []string{"false"}}, engine.Streams{}); err != nil || p.Status != sandbox.StatusFailed || *p.ExitCode != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if list := x.Processes(); len(list) != 2 || list[0].Args[0] != "echo" || list[1].Args[0] != "false" {
		t.Fatalf("%+v", list)
	}
	if err := x.WriteFile(soon(t), "notes/a.txt", 0o644, 5, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	var content strings.Builder
	if n, err := x.ReadFile(soon(t), "notes/a.txt", 1, 3, &content); err != nil || n != 3 || content.String() != "ell" {
		t.Fatalf("%d %q %v", n, content.String(), err)
	}
	changes, more, err := x.Changes(soon(t), 100)
	if err != nil || more || len(changes) == 0 {
		t.Fatalf("%+v %v %v", changes, more, err)
	}
	if _, err := s.Sandbox("bob", x.ID()); code(err) != sandbox.CodeNotFound {
		t.Fatalf("another tenant's: %v", err)
	}
	if _, err := s.Sandbox("alice", "sbx_nothere"); code(err) != sandbox.CodeNotFound {
		t.Fatalf("unknown: %v", err)
	}
	for range 2 {
		info, err := x.Destroy(soon(t))
		if err != nil || info.State != sandbox.StateEnded || info.Cause.Kind != sandbox.CauseDestroyed || info.EndedAt == nil {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if _, err := s.Sandbox("alice", x.ID()); code(err) != sandbox.CodeGone {
		t.Fatalf("ended: %v", err)
	}
	if _, err := x.Start(soon(t), sandbox.Command{Args: []string{"true"}}); code(err) != sandbox.CodeGone {
		t.Fatalf("start in an ended one: %v", err)
	}
	if info, err := s.SandboxInfo(soon(t), "alice", x.ID()); err != nil || info.State != sandbox.StateEnded {
		t.Fatalf("%+v, %v", info, err)
	}
	page, err := s.Sandboxes(soon(t), "alice", engine.Query{States: []sandbox.State{sandbox.StateEnded}})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestTimeToLive(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	for _, test := range []struct {
		name   string
		create sandbox.Create
		want   sandbox.CauseKind
	}{
		{"ttl", sandbox.Create{TTLMS: 150}, sandbox.CauseTTL},
		{"idle", sandbox.Create{TTLMS: 60_000, IdleMS: 150}, sandbox.CauseIdle},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := s.create(t, test.create)
			select {
			case <-x.Ended():
			case <-soon(t).Done():
				t.Fatal("it lives on")
			}
			if c := x.Info().Cause; c.Kind != test.want || c.Observed < 150 {
				t.Fatalf("%+v", c)
			}
		})
	}
	t.Run("a process that is waited for is use", func(t *testing.T) {
		x := s.create(t, sandbox.Create{TTLMS: 60_000, IdleMS: 150})
		p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}, WallTimeMS: 600})
		if err != nil {
			t.Fatal(err)
		}
		info, err := p.Wait(soon(t))
		if err != nil || info.Cause.Kind != sandbox.CauseWallTime || !info.TimedOut || info.Status != sandbox.StatusKilled {
			t.Fatalf("%+v, %v", info, err)
		}
		if state := x.Info().State; state != sandbox.StateRunning {
			t.Fatalf("the sandbox is %s", state)
		}
	})
	t.Run("extended", func(t *testing.T) {
		x := s.create(t, sandbox.Create{TTLMS: 200})
		if _, err := x.Extend(60_000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		if state := x.Info().State; state != sandbox.StateEnded && state != sandbox.StateRunning {
			t.Fatal(state)
		}
		if _, err := x.Extend(-1); code(err) != sandbox.CodeLimitInvalid {
			t.Fatalf("extended by -1: %v", err)
		}
	})
}

func TestMachineDeath(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	s.driver.Machines()[0].Die(driver.Death{Kind: driver.DeathAgent, Evidence: "scripted"})
	<-x.Ended()
	if c := x.Info().Cause; c.Kind != sandbox.CauseLost {
		t.Fatalf("%+v", c)
	}
	info, err := p.Wait(soon(t))
	if err != nil || info.Running || info.Cause.Kind != sandbox.CauseLost || info.Status != sandbox.StatusError {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestMemoryEndsTheSandbox(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Usage: func(life time.Duration) driver.Usage {
			if life > 100*time.Millisecond {
				return driver.Usage{OOMKills: 1, MemoryPeak: 300 << 20}
			}
			return driver.Usage{}
		}}
	})
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Wait(soon(t))
	if err != nil || info.Cause.Kind != sandbox.CauseMemory || info.Status != sandbox.StatusKilled {
		t.Fatalf("%+v, %v", info, err)
	}
	<-x.Ended()
}

// gateScript makes programs that end when their stdin does.
func writes(n int) func(driver.Plan) fake.Script {
	return func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			line := strings.Repeat("x", 1023) + "\n"
			for range n / 1024 {
				if _, err := io.WriteString(p.Stdout, line); err != nil {
					return fake.Exit{Code: 3}
				}
			}
			return fake.Exit{}
		}}
	}
}

func TestOutputResumes(t *testing.T) {
	const total = 4 << 20
	s := serve(t, engine.Options{}, writes(total))
	x := s.create(t, sandbox.Create{Limits: sandbox.Limits{OutputBytes: 64 << 10}})
	p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"w"}}, engine.Streams{})
	if err != nil || len(p.Stdout) != 64<<10 || !p.StdoutTruncated || p.StdoutBytes != total {
		t.Fatalf("%d bytes, %v of %d, %v", len(p.Stdout), p.StdoutTruncated, p.StdoutBytes, err)
	}
	got, err := x.Process(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	o := got.Output(1, 0)
	defer o.Close()
	if _, first, err := o.Next(soon(t)); code(err) != sandbox.CodeOffsetGone || first == 0 || first > total-32<<10 {
		t.Fatalf("from 0: %d, %v", first, err)
	}
	rest := got.Output(1, -1)
	defer rest.Close()
	n, first := int64(0), int64(-1)
	for {
		b, at, err := rest.Next(soon(t))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if first < 0 {
			first = at
		}
		if at != first+n {
			t.Fatalf("a gap at %d", at)
		}
		n += int64(len(b))
	}
	if first+n != total {
		t.Fatalf("the end is at %d", first+n)
	}
}

// A reader that comes before the program writes gets every byte, however slow
// it is, and the server keeps no more than the window.
func TestSlowReaderLosesNothing(t *testing.T) {
	const total = 2 << 20
	start := make(chan struct{})
	s := serve(t, engine.Options{}, func(p driver.Plan) fake.Script {
		script := writes(total)(p)
		inner := script.Program
		script.Program = func(p *fake.Process) fake.Exit { <-start; return inner(p) }
		return script
	})
	x := s.create(t, sandbox.Create{Limits: sandbox.Limits{OutputBytes: 16 << 10}})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"w"}})
	if err != nil {
		t.Fatal(err)
	}
	o := p.Output(1, 0)
	defer o.Close()
	close(start)
	var n int64
	for {
		b, at, err := o.Next(soon(t))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || at != n {
			t.Fatalf("at %d, want %d: %v", at, n, err)
		}
		if n += int64(len(b)); n%(256<<10) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if n != total {
		t.Fatalf("%d bytes of %d", n, total)
	}
}

// A client that goes away never kills a process.
func TestCallerGoesAway(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	p, err := x.Exec(ctx, sandbox.Command{Args: []string{"sleep"}}, engine.Streams{})
	if err == nil || !p.Running {
		t.Fatalf("%+v, %v", p, err)
	}
	living, err := x.Process(p.ID)
	if err != nil || !living.Info().Running {
		t.Fatalf("%v, %v", living, err)
	}
	if err := living.Signal("term"); err != nil {
		t.Fatal(err)
	}
	info, err := living.Wait(soon(t))
	if err != nil || info.Signal != "SIGTERM" || info.Cause.Kind != sandbox.CauseSignaled {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := living.Signal("SIGTERM"); code(err) != sandbox.CodeConflict {
		t.Fatalf("a signal to what has ended: %v", err)
	}
	if err := living.Signal("SIGNONE"); code(err) != sandbox.CodeSpecInvalid {
		t.Fatalf("no such signal: %v", err)
	}
}

func TestStdin(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if n, err := p.WriteStdin(soon(t), strings.NewReader(fmt.Sprint(i))); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	info, err := p.Wait(soon(t))
	if err != nil || info.StdoutBytes != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := p.WriteStdin(soon(t), strings.NewReader("late")); code(err) != sandbox.CodeConflict {
		t.Fatalf("after the end: %v", err)
	}
	deaf, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deaf.WriteStdin(soon(t), strings.NewReader("x")); code(err) != sandbox.CodeConflict {
		t.Fatalf("without stdin: %v", err)
	}
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	if info, err := deaf.Wait(soon(t)); err != nil || info.Cause.Kind != sandbox.CauseDestroyed {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestAdmission(t *testing.T) {
	s := serve(t, engine.Options{Capacity: engine.Capacity{Sandboxes: 2, Queue: 3, QueueTimeout: 300 * time.Millisecond}}, nil)
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
	s := serve(t, engine.Options{Capacity: engine.Capacity{Sandboxes: 1, Queue: 100, QueueTimeout: time.Minute}}, nil)
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
	s := serve(t, engine.Options{Quota: func(tenant string) engine.Quota {
		if tenant == "small" {
			return engine.Quota{Sandboxes: 1, MemoryBytes: 512 << 20}
		}
		return engine.Quota{}
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
	r, err := s.Run(soon(t), engine.Request{Spec: sandbox.Spec{Language: "sh", Code: "x"}, Tenant: "alice"})
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
	page, err := s.Sandboxes(soon(t), "alice", engine.Query{})
	if err != nil || len(page.Items) != 1 || page.Items[0].State != sandbox.StateEnded || page.Items[0].Error == nil {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestIdempotency(t *testing.T) {
	var mu sync.Mutex
	runs := 0
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			mu.Lock()
			runs++
			mu.Unlock()
			time.Sleep(30 * time.Millisecond)
			return fake.Exit{Code: 4}
		}}
	})
	ask := func(tenant, key, program string) (*sandbox.Result, error) {
		return s.Run(soon(t), engine.Request{Spec: sandbox.Spec{Language: "sh", Code: program}, Tenant: tenant, IdempotencyKey: key})
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
	if len(seen) != 1 || runs != 1 {
		t.Fatalf("%d results of %d runs", len(seen), runs)
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
	if _, err := s.Run(ctx, engine.Request{Spec: sandbox.Spec{Language: "sh", Code: "c"}, Tenant: "alice", IdempotencyKey: "k2"}); err != nil {
		t.Fatal(err)
	}
	if r, err := ask("alice", "k2", "c"); err != nil || *r.ExitCode != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestRunsAreRecorded(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	var id string
	r, err := s.Run(soon(t), engine.Request{
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
	page, err := s.Runs(soon(t), "alice", engine.Query{})
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
	if _, err := store.BeginRun(t.Context(), engine.RunRecord{ID: "run_1", Tenant: "alice", CreatedAt: now, Language: "sh", IdempotencyKey: "k"}); err != nil {
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
		r, err := s.Run(soon(t), engine.Request{Spec: sandbox.Spec{Language: "sh", Code: "x"}})
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
	if err := s.Ready(); code(err) != sandbox.CodeShuttingDown {
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
