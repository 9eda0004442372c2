package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// paused makes a sandbox and pauses it.
func (s *served) paused(t *testing.T, c sandbox.Create) *living.Sandbox {
	t.Helper()
	x := s.create(t, c)
	if info, err := x.Pause(soon(t)); err != nil || info.State != sandbox.StatePaused {
		t.Fatalf("%+v, %v", info, err)
	}
	return x
}

// What is asked of a paused sandbox is refused at once, and the refusal says what to do.
func TestPausedRefuses(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if info, err := x.Pause(soon(t)); err != nil || info.State != sandbox.StatePaused {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	_, startErr := x.Start(soon(t), sandbox.Command{Args: []string{"true"}})
	_, statErr := x.Stat(soon(t), "x")
	_, dialErr := x.Dial(soon(t), 80)
	for what, err := range map[string]error{
		"a command": startErr, "a file": statErr, "a port": dialErr,
		"a new file": x.WriteFile(soon(t), "x", 0o600, 1, strings.NewReader("x")), "a signal": p.Signal("TERM"),
	} {
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeConflict {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if fix, ok := e.Advice.Find(sandbox.FixCall); !ok || fix.Name != sandbox.CallResumeSandbox {
			t.Errorf("%s: advice %+v", what, e.Advice)
		}
	}
	if _, err := x.Extend(60_000); err != nil {
		t.Errorf("a paused sandbox cannot be extended: %v", err)
	}
	for range 2 {
		if info, err := x.Resume(soon(t)); err != nil || info.State != sandbox.StateRunning || info.Processes != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if err := p.Signal("KILL"); err != nil {
		t.Error(err)
	}
	if info, err := p.Wait(soon(t)); err != nil || info.Signal != "SIGKILL" {
		t.Errorf("%+v, %v", info, err)
	}
}

// While a sandbox is paused its idle time and its processes' wall time stand, and its time
// to live goes on.
func TestPausedClocks(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{TTLMS: 60_000, IdleMS: 300})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}, WallTimeMS: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Pause(soon(t)); err != nil {
		t.Fatal(err)
	}
	before := p.Info().WallMS
	time.Sleep(400 * time.Millisecond)
	if after := p.Info().WallMS; after != before || x.Info().State != sandbox.StatePaused {
		t.Errorf("its process ran from %dms to %dms, and it is %s", before, after, x.Info().State)
	}
	if _, err := x.Resume(soon(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its time goes on", func() bool { return p.Info().WallMS > before })
	mortal := s.paused(t, sandbox.Create{TTLMS: 500})
	<-mortal.Ended()
	if c := mortal.Info().Cause; c.Kind != sandbox.CauseTTL {
		t.Errorf("%+v", c)
	}
}

// Who waits for a process keeps nobody from pausing, and goes on waiting.
func TestPauseWhileWaiting(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := p.Wait(soon(t))
		waited <- err
	}()
	if _, err := x.Pause(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// A connection would stand still with the sandbox, so it is not paused.
func TestPauseUnderWay(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	conn, err := x.Dial(soon(t), 80)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Pause(soon(t)); code(err) != sandbox.CodeConflict || x.Info().State != sandbox.StateRunning {
		t.Errorf("%v, and it is %s", err, x.Info().State)
	}
	_ = conn.Close()
	eventually(t, "it is paused", func() bool { _, err := x.Pause(soon(t)); return err == nil })
}

// A pause that fails is undone; a driver that has none is told apart, and who ends
// meanwhile is not paused.
func TestPauseFails(t *testing.T) {
	why := &sandbox.Error{Code: sandbox.CodeConflict, Message: "it does not stand still"}
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Pause: func(context.Context) error { return why }}
	})
	x := s.create(t, sandbox.Create{})
	if _, err := x.Pause(soon(t)); !errors.Is(err, why) || x.Info().State != sandbox.StateRunning {
		t.Errorf("%v, and it is %s", err, x.Info().State)
	}
	if p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"true"}}); err != nil || p.ExitCode == nil {
		t.Errorf("%+v, %v", p, err)
	}
	none := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{NoPause: true} })
	x = none.create(t, sandbox.Create{})
	if _, err := x.Pause(soon(t)); code(err) != sandbox.CodeRequirementUnmet || sandbox.AsError(err).Hint == "" || x.Info().State != sandbox.StateRunning {
		t.Errorf("%v, and it is %s", err, x.Info().State)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Pause: func(context.Context) error { close(begun); <-goOn; return nil }}
	})
	x = slow.create(t, sandbox.Create{})
	refused := make(chan error, 1)
	go func() {
		_, err := x.Pause(soon(t))
		refused <- err
	}()
	<-begun
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-refused; err == nil {
		t.Error("what has ended was paused")
	}
}

// A machine that was paused when its server ended is paused in the next one, whatever was
// recorded last.
func TestAdoptPaused(t *testing.T) {
	for _, was := range []sandbox.State{sandbox.StateRunning, sandbox.StatePaused} {
		d := &outliving{keeping: &keeping{Driver: fake.New(fake.Options{}), ids: []string{"m0"}}}
		m, err := d.Create(t.Context(), driver.Plan{ID: "m0"})
		if err != nil {
			t.Fatal(err)
		}
		d.machine = m
		if err := m.Abilities().Pauser.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := memstore.New(memstore.Options{})
		info := sandbox.Info{ID: "sbx_0", State: was, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour), IdleMS: 3_600_000}
		if err := errors.Join(s.SaveSandbox(t.Context(), "alice", info), s.SaveMachine(t.Context(), "alice", "sbx_0", records.Machine{Driver: "fake", ID: "m0"})); err != nil {
			t.Fatal(err)
		}
		e := serve(t, engine.Options{Store: s, Drivers: []driver.Driver{d}}, nil)
		x, err := e.Sandbox("alice", "sbx_0")
		if err != nil || x.Info().State != sandbox.StatePaused {
			t.Fatalf("recorded as %s: %v", was, err)
		}
		if paused, err := m.Abilities().Pauser.Paused(t.Context()); err != nil || !paused {
			t.Errorf("recorded as %s: the machine runs: %v", was, err)
		}
		if _, err := x.Resume(soon(t)); err != nil {
			t.Error(err)
		}
		if p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"true"}}); err != nil || p.ExitCode == nil {
			t.Errorf("%+v, %v", p, err)
		}
		if _, err := x.Destroy(soon(t)); err != nil {
			t.Error(err)
		}
	}
}

// outliving is a driver with a machine that outlived its maker.
type outliving struct {
	*keeping
	machine driver.Machine
}

func (o *outliving) Abilities() driver.Abilities {
	return driver.Abilities{Level: sandbox.LevelNamespace, Pauses: true, Keeper: o}
}

func (o *outliving) Adopt(context.Context, string) (driver.Machine, driver.Plan, error) {
	return o.machine, driver.Plan{ID: "m0", Limits: sandbox.Limits{}.WithDefaults()}, nil
}
