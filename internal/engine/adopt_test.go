package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// keeping is a driver that says of some machines that they outlived their maker.
type keeping struct {
	*fake.Driver
	ids   []string
	adopt func(ctx context.Context, id string) error
}

func (k *keeping) Abilities() driver.Abilities {
	return driver.Abilities{Level: sandbox.LevelNamespace, Keeper: k}
}

func (k *keeping) List(context.Context) ([]string, error) { return k.ids, nil }

func (k *keeping) Adopt(ctx context.Context, id string) (driver.Machine, driver.Plan, error) {
	return nil, driver.Plan{}, k.adopt(ctx, id)
}

var errNoMachine = errors.New("no such machine")

// recorded is a store with running sandboxes that have these machines.
func recorded(t *testing.T, driverName string, machines ...string) *memstore.Store {
	t.Helper()
	s := memstore.New(memstore.Options{})
	for i, id := range machines {
		info := sandbox.Info{ID: fmt.Sprint("sbx_", i), State: sandbox.StateRunning, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}
		if err := s.SaveSandbox(t.Context(), "alice", info); err != nil {
			t.Fatal(err)
		}
		if err := s.SaveMachine(t.Context(), "alice", info.ID, records.Machine{Driver: driverName, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Machines that do not answer keep a server from starting for as long as one of them
// does, and a machine that two sandboxes name is taken up for one.
func TestAdoptSideBySide(t *testing.T) {
	const machines = 40
	d := &keeping{Driver: fake.New(fake.Options{})}
	for i := range machines {
		d.ids = append(d.ids, fmt.Sprint("m", i))
	}
	var waiting sync.WaitGroup
	waiting.Add(machines)
	arrived := make(chan struct{})
	go func() {
		waiting.Wait()
		close(arrived)
	}()
	var calls atomic.Int64
	d.adopt = func(context.Context, string) error {
		if calls.Add(1) <= machines {
			waiting.Done()
		}
		select {
		case <-arrived:
		case <-time.After(time.Second):
			t.Error("they are taken up one after the other")
		}
		return errNoMachine
	}
	s := recorded(t, "fake", append(d.ids, "m0", "m1")...)
	e := serve(t, engine.Options{Store: s, Drivers: []driver.Driver{d}}, nil)
	if n := calls.Load(); n != 2*machines { // to adopt, and to destroy
		t.Errorf("%d machines were taken up", n)
	}
	if info, err := e.SandboxInfo(soon(t), "alice", fmt.Sprint("sbx_", machines)); err != nil || info.Cause == nil || info.Cause.Kind != sandbox.CauseLost {
		t.Errorf("%+v, %v", info, err)
	}
}

// A server that is stopped while it starts has nothing recorded as lost of which it
// does not know.
func TestAdoptInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int64
	d := &keeping{Driver: fake.New(fake.Options{}), ids: []string{"m0"}, adopt: func(ctx context.Context, _ string) error {
		calls.Add(1)
		cancel()
		return context.Cause(ctx)
	}}
	s := recorded(t, "fake", "m0")
	e := engine.New(engine.Options{Store: s, Drivers: []driver.Driver{d}})
	defer e.Close()
	if err := e.Open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if info, err := s.LoadSandbox(t.Context(), "alice", "sbx_0"); err != nil || info.State != sandbox.StateRunning || calls.Load() != 1 {
		t.Errorf("%+v, %v, %d calls", info, err, calls.Load())
	}
}

// A sandbox that was ending when its server ended has ended for the reason that was
// recorded.
func TestEndingIsNotLost(t *testing.T) {
	s := memstore.New(memstore.Options{})
	causes := map[string]sandbox.CauseKind{"sbx_1": sandbox.CauseTTL, "sbx_2": sandbox.CauseDestroyed}
	for id, kind := range causes {
		info := sandbox.Info{ID: id, State: sandbox.StateEnding, CreatedAt: time.Now(), Cause: &sandbox.Cause{Kind: kind}}
		if err := s.SaveSandbox(t.Context(), "alice", info); err != nil {
			t.Fatal(err)
		}
	}
	e := serve(t, engine.Options{Store: s}, nil)
	for id, kind := range causes {
		if info, err := e.SandboxInfo(soon(t), "alice", id); err != nil || info.State != sandbox.StateEnded || info.Cause.Kind != kind || info.EndedAt == nil {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

// Whoever follows the network of a sandbox that is left to the next process hears that the
// server ends, and not that the sandbox has ended.
func TestFollowedSandboxIsLeft(t *testing.T) {
	d := &keeping{Driver: fake.New(fake.Options{})}
	o := engine.Options{Drivers: []driver.Driver{d}}
	o.Policy.Network = admission.Network{Own: true}
	s := serve(t, o, nil)
	x := s.create(t, sandbox.Create{Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Address: "127.0.0.1"}}}})
	heard, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- x.WatchNetwork(t.Context(), func(sandbox.NetworkUse) error { heard <- struct{}{}; return nil })
	}()
	<-heard
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; code(err) != sandbox.CodeShuttingDown {
		t.Errorf("%v; it is %s", err, x.Info().State)
	}
	for _, m := range d.Machines() {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
