package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
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

// A reader that is there gets what it is owed also when the sandbox ends under
// it: an end of the stream, never a gap.
func TestReaderOfASandboxThatEnds(t *testing.T) {
	for range 20 {
		s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
			return fake.Script{Program: func(p *fake.Process) fake.Exit {
				for {
					if _, err := io.WriteString(p.Stdout, strings.Repeat("y\n", 2048)); err != nil {
						return fake.Exit{Signal: 9}
					}
				}
			}}
		})
		x := s.create(t, sandbox.Create{Limits: sandbox.Limits{OutputBytes: 8 << 10}})
		_, stdout, stderr, err := x.StartAttached(soon(t), sandbox.Command{Args: []string{"yes"}})
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		for i := 0; ; i++ {
			b, at, err := stdout.Next(soon(t))
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || at != n {
				t.Fatalf("at %d of %d: %v", at, n, err)
			}
			n += int64(len(b))
			if i == 3 {
				go x.Destroy(context.WithoutCancel(t.Context()))
			}
			time.Sleep(time.Millisecond)
		}
		stdout.Close()
		stderr.Close()
	}
}

// What a command asks for itself is held against the operator's limits, too.
func TestCommandsKeepToThePolicy(t *testing.T) {
	s := serve(t, engine.Options{Policy: admission.Policy{Max: sandbox.Limits{WallTimeMS: 2000, OutputBytes: 1 << 20}}}, nil)
	x := s.create(t, sandbox.Create{})
	for field, c := range map[string]sandbox.Command{
		"wall_time_ms": {Args: []string{"sleep"}, WallTimeMS: 60_000},
		"output_bytes": {Args: []string{"true"}, OutputBytes: 1 << 30},
	} {
		_, err := x.Start(soon(t), c)
		if code(err) != sandbox.CodeLimitInvalid || sandbox.AsError(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := x.Exec(soon(t), sandbox.Command{Args: []string{"true"}, WallTimeMS: 1000, OutputBytes: 1 << 10}); err != nil {
		t.Error(err)
	}
}

// One tenant's full line does not keep others out of theirs, nor from room that
// is there.
func TestFullLineOfOneTenant(t *testing.T) {
	s := serve(t, engine.Options{
		Capacity: admission.Capacity{Sandboxes: 4, Queue: 6, QueueTimeout: time.Minute},
		Quota: func(tenant string) admission.Quota {
			if tenant == "greedy" {
				return admission.Quota{Runs: 1}
			}
			return admission.Quota{}
		},
	}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			select {
			case <-p.Killed:
			case <-time.After(time.Minute):
			}
			return fake.Exit{}
		}}
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var busy atomic.Int64
	for range 10 {
		wg.Go(func() {
			_, err := s.Run(ctx, runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "x"}, Tenant: "greedy"})
			if code(err) == sandbox.CodeBusy {
				busy.Add(1)
			}
		})
	}
	eventually(t, "the line is full", func() bool { return s.Stats().Waiting == 6 && busy.Load() == 3 })
	x, err := s.Create(soon(t), "modest", sandbox.Create{})
	if err != nil {
		t.Fatalf("another tenant: %v", err)
	}
	_, _ = x.Destroy(soon(t))
	stop()
	wg.Wait()
}

// Somebody who goes away while a program does not read blocks nobody, and does
// not close the program's stdin.
func TestStdinThatIsNotRead(t *testing.T) {
	read := make(chan struct{})
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			<-read
			_, _ = io.Copy(p.Stdout, p.Stdin)
			return fake.Exit{}
		}}
	})
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"late"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := p.WriteStdin(ctx, strings.NewReader(strings.Repeat("a", 1<<20)))
		cancel()
		if err == nil {
			t.Fatal("a megabyte went into a program that does not read")
		}
	}
	close(read)
	if _, err := p.WriteStdin(soon(t), strings.NewReader("end")); err != nil {
		t.Fatalf("afterwards: %v", err)
	}
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	info, err := p.Wait(soon(t))
	if err != nil || info.StdoutBytes < 4 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// refusing is a store whose disk is full at times.
type refusing struct {
	*memstore.Store

	full atomic.Bool
}

func (r *refusing) SaveSandbox(ctx context.Context, tenant string, info sandbox.Info) error {
	if r.full.Load() {
		return &sandbox.Error{Code: sandbox.CodeInsufficient, Message: "the disk is full"}
	}
	return r.Store.SaveSandbox(ctx, tenant, info)
}

func (r *refusing) BeginRun(ctx context.Context, record records.Run) (*records.Run, error) {
	if r.full.Load() {
		return nil, &sandbox.Error{Code: sandbox.CodeInsufficient, Message: "the disk is full"}
	}
	return r.Store.BeginRun(ctx, record)
}

// An end that cannot be recorded is told all the same, and recorded later.
func TestEndOnAFullDisk(t *testing.T) {
	store := &refusing{Store: memstore.New(memstore.Options{})}
	s := serve(t, engine.Options{Store: store}, nil)
	x := s.create(t, sandbox.Create{})
	store.full.Store(true)
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	info, err := s.SandboxInfo(soon(t), "alice", x.ID())
	if err != nil || info.State != sandbox.StateEnded || info.Cause.Kind != sandbox.CauseDestroyed {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := s.Sandbox("bob", x.ID()); code(err) != sandbox.CodeNotFound {
		t.Fatalf("another tenant: %v", err)
	}
	if code(s.Ready(t.Context())) != sandbox.CodeInsufficient {
		t.Fatalf("Ready: %v", s.Ready(t.Context()))
	}
	store.full.Store(false)
	eventually(t, "it is recorded", func() bool {
		info, err := store.LoadSandbox(t.Context(), "alice", x.ID())
		return err == nil && info.State == sandbox.StateEnded && s.Ready(t.Context()) == nil
	})
}

// Nobody who goes away leaves a sandbox behind that nobody knows.
func TestCreatorGoesAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Create: func(context.Context) error {
			cancel() // whoever asked goes while it is made
			return nil
		}}
	})
	if _, err := s.Create(ctx, "alice", sandbox.Create{}); err == nil {
		t.Fatal("it was created for nobody")
	}
	eventually(t, "nothing lives", func() bool { return s.driver.Living() == 0 })
	page, err := s.Sandboxes(soon(t), "alice", records.Query{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Cause == nil || page.Items[0].Cause.Kind != sandbox.CauseCancelled {
		t.Fatalf("%+v, %v", page, err)
	}
}

// A disk that was full once is not the cause of everything that fails later.
func TestOldTroubleIsNotANewCause(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Usage: func(life time.Duration) driver.Usage { return driver.Usage{DiskFull: true, DiskPeak: 1 << 20} }}
	})
	x := s.create(t, sandbox.Create{})
	first, err := x.Exec(soon(t), sandbox.Command{Args: []string{"false"}})
	if err != nil || first.Cause.Kind != sandbox.CauseDisk {
		t.Fatalf("the first: %+v, %v", first.Cause, err)
	}
	second, err := x.Exec(soon(t), sandbox.Command{Args: []string{"false"}})
	if err != nil || second.Cause.Kind != sandbox.CauseExited {
		t.Fatalf("the second: %+v, %v", second.Cause, err)
	}
}

// What a failed write has left of a file does not stay.
func TestBrokenUploadLeavesNothing(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	broken := io.MultiReader(strings.NewReader("half of it"), brokenReader{})
	if err := x.WriteFile(soon(t), "f", 0o644, -1, broken); err == nil {
		t.Fatal("it counts as written")
	}
	if _, err := x.Stat(soon(t), "f"); code(err) != sandbox.CodeFileNotFound {
		t.Fatalf("what is left: %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the line broke") }

// Programs that a shutdown ends say so.
func TestShutdownIsTheCause(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			p.Sleep(time.Hour)
			return fake.Exit{}
		}}
	})
	results := make(chan *sandbox.Result, 1)
	go func() {
		r, err := s.Run(context.WithoutCancel(t.Context()), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "x"}})
		if err != nil {
			t.Error(err)
		}
		results <- r
	}()
	eventually(t, "it runs", func() bool { return s.Stats().Runs == 1 && s.driver.Living() == 1 })
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(now); err != nil {
		t.Fatal(err)
	}
	if r := <-results; r.Cause.Kind != sandbox.CauseCancelled || !strings.Contains(r.Cause.Evidence, "shut down") {
		t.Fatalf("%+v", r.Cause)
	}
}
