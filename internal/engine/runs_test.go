package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// held is a program that prints, waits to be let go, and prints again.
type held struct {
	printed chan struct{} // a token for each that has printed
	release chan struct{} // closed to let all go
	once    sync.Once
}

func newHeld(t *testing.T) *held {
	h := &held{printed: make(chan struct{}, 100), release: make(chan struct{})}
	t.Cleanup(h.letGo)
	return h
}

func (h *held) letGo() { h.once.Do(func() { close(h.release) }) }

func (h *held) script(driver.Plan) fake.Script {
	return fake.Script{Program: func(p *fake.Process) fake.Exit {
		_, _ = io.WriteString(p.Stdout, "before\xff\n")
		_, _ = io.WriteString(p.Stderr, "warning\n")
		h.printed <- struct{}{}
		select {
		case <-h.release:
		case <-p.Killed:
			return fake.Exit{}
		}
		_, _ = io.WriteString(p.Stdout, "after\n")
		return fake.Exit{}
	}}
}

func asks(tenant, code string) runs.Request {
	return runs.Request{Spec: sandbox.Spec{Language: "sh", Code: code}, Tenant: tenant}
}

func (s *served) start(t *testing.T, req runs.Request) records.Run {
	t.Helper()
	r, err := s.Start(soon(t), req)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	return r
}

// states are a tenant's runs by state.
func (s *served) states(t *testing.T, tenant string, q records.Query) map[sandbox.RunState]int {
	t.Helper()
	page, err := s.Runs(t.Context(), tenant, q)
	if err != nil {
		t.Fatal(err)
	}
	found := map[sandbox.RunState]int{}
	for _, r := range page.Items {
		found[r.State]++
	}
	return found
}

// A run that nobody waits for is queued, runs and finishes; all of it can be
// seen, by its tenant alone.
func TestDetachedRunsCanBeFollowed(t *testing.T) {
	h := newHeld(t)
	s := serve(t, engine.Options{Capacity: admission.Capacity{Runs: 1}}, h.script)
	released := make(chan struct{}, 2)
	req := asks("alice", "a")
	req.Released = func() { released <- struct{}{} }
	first := s.start(t, req)
	<-h.printed
	second := s.start(t, req)
	if r, err := s.RunRecord(t.Context(), "alice", first.ID); err != nil || r.State != sandbox.RunRunning || r.StartedAt.IsZero() || r.Result != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if second.State != sandbox.RunQueued {
		t.Fatalf("%+v", second)
	}
	all := s.states(t, "alice", records.Query{})
	if all[sandbox.RunRunning] != 1 || all[sandbox.RunQueued] != 1 {
		t.Fatalf("%v", all)
	}
	if queued := s.states(t, "alice", records.Query{RunStates: []sandbox.RunState{sandbox.RunQueued}}); len(queued) != 1 || queued[sandbox.RunQueued] != 1 {
		t.Fatalf("%v", queued)
	}
	if theirs := s.states(t, "bob", records.Query{}); len(theirs) != 0 {
		t.Fatalf("bob sees %v", theirs)
	}
	for what, err := range map[string]error{
		"cancel": second3(s.CancelRun(soon(t), "bob", first.ID)), "watch": watchErr(s.WatchRun(soon(t), "bob", first.ID, [2]int64{})), "await": second3(s.AwaitRun(soon(t), "bob", first.ID)),
	} {
		if code(err) != sandbox.CodeNotFound {
			t.Errorf("%s by bob: %v", what, err)
		}
	}
	cancelledOne, err := s.CancelRun(soon(t), "alice", second.ID)
	if err != nil || cancelledOne.State != sandbox.RunFinished || cancelledOne.Status != sandbox.StatusKilled || cancelledOne.Cause != sandbox.CauseCancelled || cancelledOne.FinishedAt.IsZero() {
		t.Fatalf("%+v, %v", cancelledOne, err)
	}
	h.letGo()
	done, err := s.AwaitRun(soon(t), "alice", first.ID)
	if err != nil || done.State != sandbox.RunFinished || done.Result == nil || !strings.HasSuffix(done.Result.Stdout, "after\n") {
		t.Fatalf("%+v, %v", done, err)
	}
	if again, err := s.CancelRun(soon(t), "alice", first.ID); err != nil || again.Status != sandbox.StatusSucceeded {
		t.Fatalf("cancelled when it had ended: %+v, %v", again, err)
	}
	<-released
	<-released
}

func second3[A any](_ A, err error) error { return err }

func watchErr(_ *runs.Watch, err error) error { return err }

// follow reads a watch to its end.
func follow(t *testing.T, w *runs.Watch) (states []sandbox.RunState, output [2]string, result *sandbox.Result) {
	t.Helper()
	for {
		u, err := w.Next(soon(t))
		switch {
		case errors.Is(err, io.EOF):
			return states, output, result
		case err != nil:
			t.Fatal(err)
		case u.Record != nil:
			states = append(states, u.Record.State)
		case u.Stream > 0:
			output[u.Stream-1] += string(u.Chunk)
		default:
			result = u.Result
		}
	}
}

// arrived waits until what a held program prints first is here.
func (s *served) arrived(t *testing.T, id string) {
	t.Helper()
	w, err := s.WatchRun(soon(t), "alice", id, [2]int64{})
	for left := len("before\xff\nwarning\n"); left > 0 && err == nil; {
		var u runs.Update
		u, err = w.Next(soon(t))
		left -= len(u.Chunk)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whoever watches sees every byte that is kept, from wherever they begin, and
// the result; the program waits for nobody.
func TestRunsCanBeWatched(t *testing.T) {
	h := newHeld(t)
	s := serve(t, engine.Options{}, h.script)
	result := make(chan *sandbox.Result, 1)
	id := make(chan string, 1)
	go func() { // a run that somebody waits for can be watched too
		req := asks("alice", "a")
		req.Started = func(i string) { id <- i }
		r, err := s.Run(context.WithoutCancel(t.Context()), req)
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	run := <-id
	<-h.printed
	watch := func(from ...int64) *runs.Watch {
		w, err := s.WatchRun(soon(t), "alice", run, [2]int64{from[0], from[1]})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	early, idle := watch(0, 0), watch(0, 0)
	s.arrived(t, run)
	late := watch(8, 8)
	if _, err := s.WatchRun(soon(t), "alice", run, [2]int64{9, 0}); code(err) != sandbox.CodeOffsetGone {
		t.Errorf("from a byte that was not written: %v", err)
	}
	if u, err := early.Next(soon(t)); err != nil || u.Record == nil || u.Record.State != sandbox.RunRunning {
		t.Fatalf("%+v, %v", u, err)
	}
	h.letGo()
	r := <-result
	states, output, told := follow(t, early)
	if len(states) != 0 || output != [2]string{"before\xff\nafter\n", "warning\n"} || told == nil || told.ID != r.ID {
		t.Errorf("%v %q %+v", states, output, told)
	}
	if _, output, told = follow(t, late); output != [2]string{"after\n", ""} || told == nil {
		t.Errorf("%q %+v", output, told)
	}
	if _, output, _ = follow(t, idle); output[0] != "before\xff\nafter\n" {
		t.Errorf("%q for one who comes for it when the run has ended", output)
	}
	// Afterwards the result has it. Bytes that it does not have as they were come
	// with it only.
	if states, output, told = follow(t, watch(0, 4)); len(states) != 0 || output != [2]string{"", "ing\n"} || told == nil || told.Stdout != r.Stdout {
		t.Errorf("%v %q %+v", states, output, told)
	}
}

// A run that is cancelled keeps what it had printed.
func TestCancelledRunsKeepTheirOutput(t *testing.T) {
	h := newHeld(t)
	s := serve(t, engine.Options{}, h.script)
	req := asks("alice", "a")
	req.IdempotencyKey = "k"
	answered := make(chan *sandbox.Result, 1)
	ids := make(chan string, 1)
	req.Started = func(id string) { ids <- id }
	go func() {
		r, err := s.Run(context.WithoutCancel(t.Context()), req)
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	id := <-ids
	s.arrived(t, id)
	for range 2 { // a second time changes nothing
		r, err := s.CancelRun(soon(t), "alice", id)
		if err != nil || r.Status != sandbox.StatusKilled || r.Cause != sandbox.CauseCancelled || !strings.HasPrefix(r.Result.Stdout, "before") || r.Result.Stderr != "warning\n" {
			t.Fatalf("%+v, %v", r, err)
		}
		if !strings.Contains(r.Result.Cause.Evidence, "cancelled") {
			t.Errorf("evidence %q", r.Result.Cause.Evidence)
		}
	}
	if r := <-answered; r.ID != id || r.Cause.Kind != sandbox.CauseCancelled {
		t.Errorf("who waited was told %+v", r)
	}
}

// A tenant has so many detached runs and no more; those of others do not count.
func TestDetachedRunsAreBounded(t *testing.T) {
	h := newHeld(t)
	s := serve(t, engine.Options{Capacity: admission.Capacity{Runs: 1, Detached: 2}}, h.script)
	first := s.start(t, asks("alice", "a"))
	s.start(t, asks("alice", "b"))
	_, err := s.Start(soon(t), asks("alice", "c"))
	if code(err) != sandbox.CodeQuotaExceeded {
		t.Fatalf("a third: %v", err)
	}
	if page, err := s.Runs(t.Context(), "alice", records.Query{}); err != nil || len(page.Items) != 2 {
		t.Errorf("what was refused is recorded: %+v, %v", page, err)
	}
	s.start(t, asks("bob", "a"))
	if _, err := s.CancelRun(soon(t), "alice", first.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a place again", func() bool {
		_, err := s.Start(soon(t), asks("alice", "d"))
		return err == nil
	})
}

// A request that somebody waits for goes before those for which nobody does.
func TestWaitingGoesBeforeDetached(t *testing.T) {
	h := newHeld(t)
	var mu sync.Mutex
	var order []string
	s := serve(t, engine.Options{Capacity: admission.Capacity{Runs: 1}}, h.script)
	s.start(t, asks("alice", "first"))
	<-h.printed
	note := func(name string) func(string) {
		return func(string) { mu.Lock(); order = append(order, name); mu.Unlock() }
	}
	for range 3 {
		req := asks("alice", "detached")
		req.Started = note("detached")
		s.start(t, req)
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		req := asks("alice", "waited")
		req.Started = note("waited")
		if _, err := s.Run(context.WithoutCancel(t.Context()), req); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "all wait", func() bool { return s.Stats().Waiting == 4 })
	h.letGo()
	<-waited
	mu.Lock()
	defer mu.Unlock()
	if order[0] != "waited" {
		t.Errorf("%v", order)
	}
}

// A detached run with a key runs once: asked for again it is the same, under
// way or ended, and who then waits gets its result.
func TestDetachedRunsHaveTheirKey(t *testing.T) {
	h := newHeld(t)
	s := serve(t, engine.Options{}, h.script)
	req := asks("alice", "a")
	req.IdempotencyKey = "k"
	first := s.start(t, req)
	if again := s.start(t, req); again.ID != first.ID || again.State == sandbox.RunFinished {
		t.Fatalf("%+v, then %+v", first, again)
	}
	other := req
	other.Spec.Code = "b"
	if _, err := s.Start(soon(t), other); code(err) != sandbox.CodeIdempotency {
		t.Fatalf("another request: %v", err)
	}
	h.letGo()
	r, err := s.Run(soon(t), req)
	if err != nil || r.ID != first.ID {
		t.Fatalf("%+v, %v", r, err)
	}
	if again := s.start(t, req); again.ID != first.ID || again.State != sandbox.RunFinished {
		t.Fatalf("%+v", again)
	}
	if _, err := s.Start(soon(t), other); code(err) != sandbox.CodeIdempotency {
		t.Fatalf("another request, afterwards: %v", err)
	}
}

// A server that drains waits for detached runs as for others, takes no new ones,
// and in the end cancels them; their records say so.
func TestDrainAndDetachedRuns(t *testing.T) {
	h := newHeld(t)
	store := memstore.New(memstore.Options{})
	s := serve(t, engine.Options{Store: store, Capacity: admission.Capacity{Runs: 1}}, h.script)
	running := s.start(t, asks("alice", "a"))
	<-h.printed
	queued := s.start(t, asks("alice", "b"))
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(ctx) }()
	eventually(t, "it drains", func() bool { return s.Stats().Draining })
	if _, err := s.Start(soon(t), asks("alice", "c")); code(err) != sandbox.CodeShuttingDown {
		t.Fatalf("a new one: %v", err)
	}
	select {
	case err := <-drained:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	cancel()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{running.ID, queued.ID} {
		eventually(t, "its end is recorded", func() bool {
			r, err := store.LoadRun(t.Context(), "alice", id)
			return err == nil && r.Result != nil && r.Cause == sandbox.CauseCancelled && strings.Contains(r.Result.Cause.Evidence, "shut down")
		})
	}
}

// A run that cannot be recorded is not begun, and leaves its places.
func TestDetachedRunsThatCannotBeRecorded(t *testing.T) {
	store := &refusing{Store: memstore.New(memstore.Options{})}
	s := serve(t, engine.Options{Store: store, Capacity: admission.Capacity{Runs: 1, Detached: 1}}, nil)
	store.full.Store(true)
	for range 3 {
		if _, err := s.Start(soon(t), asks("alice", "a")); code(err) != sandbox.CodeInsufficient {
			t.Fatalf("%v", err)
		}
	}
	store.full.Store(false)
	r := s.start(t, asks("alice", "a"))
	if r, err := s.AwaitRun(soon(t), "alice", r.ID); err != nil || r.Status != sandbox.StatusSucceeded {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := s.Stats(); n.Runs != 0 || n.Waiting != 0 {
		t.Errorf("%+v", n)
	}
}
