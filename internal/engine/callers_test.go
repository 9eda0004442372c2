package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// A run with an idempotency key goes on without its callers, for hours if need be:
// one who asks for it again and goes away must not be held until it ends.
func TestWaitingForAKeyEndsWithItsCaller(t *testing.T) {
	h := newHeld(t)
	s := serve(t, engine.Options{}, h.script)
	req := asks("alice", "x")
	req.IdempotencyKey = "k"
	first := s.start(t, req)
	<-h.printed
	type answer struct {
		result *sandbox.Result
		err    error
	}
	ask := func(ctx context.Context) <-chan answer {
		told := make(chan answer, 1)
		go func() {
			r, err := s.Run(ctx, req)
			told <- answer{r, err}
		}()
		return told
	}
	ctx, leave := context.WithCancel(soon(t))
	gone, stays := ask(ctx), ask(soon(t))
	leave()
	select {
	case a := <-gone:
		if code(a.err) != string(sandbox.CodeDisconnected) {
			t.Errorf("who went away: %+v, %v", a.result, a.err)
		}
	case <-soon(t).Done():
		t.Fatal("who went away is held")
	}
	select {
	case a := <-stays:
		t.Fatalf("an answer before the run has ended: %+v", a)
	default:
	}
	h.letGo()
	if a := <-stays; a.err != nil || a.result.ID != first.ID || a.result.Status != sandbox.StatusSucceeded {
		t.Errorf("who stayed: %+v", a)
	}
}

// leaving is a store whose callers go away while it writes: what it writes is
// there, and says so only to those whose context has not ended.
type leaving struct {
	*memstore.Store
	leave context.CancelFunc
}

func (l *leaving) BeginRun(ctx context.Context, r records.Run) (*records.Run, error) {
	earlier, err := l.Store.BeginRun(ctx, r)
	l.leave()
	return earlier, errors.Join(err, ctx.Err())
}

// A run that was recorded gets a result, also when its caller went away at that
// very moment.
func TestCallerLeavesWhileTheRunIsRecorded(t *testing.T) {
	for name, ask := range map[string]func(s *served, ctx context.Context) error{
		"detached": func(s *served, ctx context.Context) error { _, err := s.Start(ctx, asks("alice", "x")); return err },
		"waited":   func(s *served, ctx context.Context) error { _, err := s.Run(ctx, asks("alice", "x")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			s := serve(t, engine.Options{Store: &leaving{memstore.New(memstore.Options{}), leave}}, func(driver.Plan) fake.Script {
				return fake.Script{Program: func(*fake.Process) fake.Exit { return fake.Exit{} }}
			})
			if err := ask(s, ctx); err != nil {
				t.Errorf("%v", err)
			}
			page, err := s.Runs(t.Context(), "alice", records.Query{})
			if err != nil || len(page.Items) != 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			r, err := s.AwaitRun(soon(t), "alice", page.Items[0].ID)
			if err != nil || r.State != sandbox.RunFinished || r.Result == nil {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// breaking is a driver whose machines panic when they are dialled, as long as it is
// broken.
type breaking struct {
	*fake.Driver
	broken atomic.Bool
}

func (b *breaking) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	m, err := b.Driver.Create(ctx, plan)
	if err != nil || !b.broken.Load() {
		return m, err
	}
	return brokenMachine{m}, nil
}

type brokenMachine struct{ driver.Machine }

func (brokenMachine) Dial(context.Context) (driver.Conn, error) { panic("a fault of ours") }

// A fault of ours ends the run in which it shows, and nothing else: not the server,
// not the machine's end, not the record.
func TestPanicEndsOneRun(t *testing.T) {
	d := &breaking{Driver: fake.New(fake.Options{Script: func(driver.Plan) fake.Script {
		return fake.Script{Program: func(*fake.Process) fake.Exit { return fake.Exit{} }}
	}})}
	s := serve(t, engine.Options{Drivers: []driver.Driver{d}, Capacity: admission.Capacity{Runs: 1}}, nil)
	d.broken.Store(true)
	started := s.start(t, asks("alice", "x"))
	r, err := s.AwaitRun(soon(t), "alice", started.ID)
	if err != nil || r.State != sandbox.RunFinished || r.Result == nil || r.Result.Error == nil || r.Result.Error.Code != sandbox.CodeInternal {
		t.Errorf("detached: %+v, %v", r, err)
	}
	if _, err := s.Run(soon(t), asks("bob", "x")); code(err) != string(sandbox.CodeInternal) {
		t.Errorf("waited: %v", err)
	}
	if n := d.Living(); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	d.broken.Store(false)
	for _, tenant := range []string{"alice", "bob"} { // there is room for one
		if r, err := s.Run(soon(t), asks(tenant, "x")); err != nil || r.Status != sandbox.StatusSucceeded {
			t.Errorf("afterwards: %+v, %v", r, err)
		}
		if n := s.states(t, tenant, records.Query{}); n[sandbox.RunFinished] != 2 {
			t.Errorf("%s: %v", tenant, n)
		}
	}
}
