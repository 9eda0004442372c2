package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
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
	host := fstest.MapFS{"usr/bin/sh": program, "usr/bin/python3": program}
	template, err := image.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{driver: fake.New(fake.Options{Script: script}), store: memstore.New(memstore.Options{})}
	if o.Store == nil {
		o.Store = s.store
	}
	if o.Drivers == nil {
		o.Drivers = []driver.Driver{s.driver}
	}
	o.Host = host
	if o.Template == nil {
		o.Template = func(string) (image.Template, error) { return template, nil }
	}
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

func (s *served) create(t *testing.T, c sandbox.Create) *living.Sandbox {
	t.Helper()
	x, err := s.Create(soon(t), "alice", c)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return x
}

// soon bounds what a test waits for.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"echo", "hello"}})
	if err != nil || p.Stdout != "hello\n" || p.Status != sandbox.StatusSucceeded || p.Running || *p.ExitCode != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err = x.Exec(soon(t), sandbox.Command{Args: []string{"false"}}); err != nil || p.Status != sandbox.StatusFailed || *p.ExitCode != 1 {
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
	changes, err := x.Changes(soon(t), 100)
	if err != nil || changes.More || len(changes.Items) == 0 {
		t.Fatalf("%+v %v", changes, err)
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
	page, err := s.Sandboxes(soon(t), "alice", records.Query{States: []sandbox.State{sandbox.StateEnded}})
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
			} else if fix, _ := c.Advice.Find(sandbox.FixSet); fix.Name != test.name+"_ms" || c.Hint == "" {
				t.Errorf("advice %+v, hint %q", c.Advice, c.Hint)
			}
		})
	}
	t.Run("as long as it may live", func(t *testing.T) {
		x := serve(t, engine.Options{MaxTTL: 1500 * time.Millisecond}, nil).create(t, sandbox.Create{TTLMS: 1500})
		select {
		case <-x.Ended():
		case <-soon(t).Done():
			t.Fatal("it lives on")
		}
		c := x.Info().Cause
		if fix, more := c.Advice.Find(sandbox.FixSet); more || c.Kind != sandbox.CauseTTL {
			t.Errorf("advice to ask for %+v, which is refused", fix)
		}
	})
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
		x := s.create(t, sandbox.Create{TTLMS: 2000})
		if _, err := x.Extend(60_000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if state := x.Info().State; state != sandbox.StateRunning {
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

// Where only a process is to end, one that died says so, and nothing else ends.
func TestMemoryEndsTheProcess(t *testing.T) {
	var kills atomic.Int64
	s := serve(t, engine.Options{}, func(p driver.Plan) fake.Script {
		if !p.KillOne {
			t.Error("the plan does not say so")
		}
		return fake.Script{
			Usage: func(time.Duration) driver.Usage { return driver.Usage{OOMKills: kills.Load(), MemoryPeak: 300 << 20} },
			Program: func(p *fake.Process) fake.Exit {
				if p.Args[0] == "hog" {
					kills.Add(1)
					return fake.Exit{Signal: 9}
				}
				return fake.Builtin(p)
			},
		}
	})
	x := s.create(t, sandbox.Create{OnOutOfMemory: sandbox.OutOfMemoryProcess})
	for range 2 {
		p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"hog"}})
		if err != nil || p.Status != sandbox.StatusKilled || p.Cause.Kind != sandbox.CauseMemory {
			t.Fatalf("%+v, %v", p, err)
		}
		p, err = x.Exec(soon(t), sandbox.Command{Args: []string{"false"}})
		if err != nil || p.Status != sandbox.StatusFailed || p.Cause.Kind != sandbox.CauseExited {
			t.Fatalf("another one: %+v, %v", p, err)
		}
	}
	if info := x.Info(); info.State != sandbox.StateRunning {
		t.Fatalf("%+v", info)
	}
	if _, err := s.Create(soon(t), "alice", sandbox.Create{OnOutOfMemory: "all"}); code(err) != sandbox.CodeSpecInvalid || sandbox.AsError(err).Field != "on_out_of_memory" {
		t.Errorf("another word: %v", err)
	}
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
	p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"w"}})
	if err != nil || len(p.Stdout) != 64<<10 || !p.StdoutTruncated || p.StdoutBytes != total {
		t.Fatalf("%d bytes, %v of %d, %v", len(p.Stdout), p.StdoutTruncated, p.StdoutBytes, err)
	}
	got, err := x.Process(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	o := got.Output(1, 0)
	defer o.Close()
	if _, first, err := o.Next(soon(t)); code(err) != sandbox.CodeOffsetGone || first != total-64<<10 {
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
			if first = at; first != total-64<<10 {
				t.Fatalf("the first that is kept is %d", first)
			}
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
	p, err := x.Exec(ctx, sandbox.Command{Args: []string{"sleep"}})
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
