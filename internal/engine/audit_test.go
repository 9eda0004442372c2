package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"pinfold/internal/audit"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// audited is an engine's auditor that can be broken, and what it was asked to record.
type audited struct {
	records.Auditor

	mu     sync.Mutex
	strict bool
	broken error
	begun  bool // the run began before it broke
	events []records.Event
	told   func(records.Event) // nil: nobody is
}

func (a *audited) Strict() bool { return a.strict }

func (a *audited) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun {
		return nil
	}
	return a.broken
}

func (a *audited) Record(ctx context.Context, e records.Event) (*sandbox.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return nil, a.broken
	}
	a.events = append(a.events, e)
	if a.told != nil {
		a.told(e)
	}
	return a.Auditor.Record(ctx, e)
}

// last returns the events so far, and forgets them.
func (a *audited) last() []records.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.events
	a.events = nil
	return all
}

func newAudited(t *testing.T, strict bool) *audited {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(t.TempDir(), audit.Dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &audited{Auditor: l, strict: strict}
}

func prints(driver.Plan) fake.Script { return fake.Script{Program: saysSo} }

func saysSo(p *fake.Process) fake.Exit {
	_, _ = p.Stdout.Write([]byte("42\n"))
	return fake.Exit{}
}

// What runs is recorded once, with whose it is, who asked, which wall it had and how it
// ended; so is a living sandbox, from its making to its end, with its processes.
func TestWhatRunsIsRecorded(t *testing.T) {
	a := newAudited(t, true)
	s := serve(t, engine.Options{Auditor: a}, prints)
	ctx := records.WithKey(soon(t), "key-1")
	r, err := s.Run(ctx, asks("alice", "echo 42"))
	if err != nil || r.Receipt == nil || r.ReceiptMissing != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	all := a.last()
	if len(all) != 1 {
		t.Fatalf("%d events", len(all))
	}
	e := all[0].Entry
	if e.Kind != sandbox.AuditRun || e.Tenant != "alice" || e.Key != "key-1" || e.ID != r.ID || e.Status != r.Status || e.Cause != sandbox.CauseExited ||
		e.Isolation.Driver != "fake" || e.Isolation.Level == "" || string(all[0].Parts["stdout"]) != "42\n" || string(all[0].Parts["code"]) != "echo 42" {
		t.Errorf("%+v with %q", e, all[0].Parts)
	}
	kept, err := s.RunRecord(soon(t), "alice", r.ID)
	if err != nil || kept.Result == nil || kept.Result.Receipt == nil || kept.Result.Receipt.Index != r.Receipt.Index {
		t.Errorf("what is kept has not the receipt: %+v, %v", kept.Result, err)
	}

	x, err := s.Create(ctx, "bob", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.Exec(ctx, sandbox.Command{Args: []string{"say"}})
	if err != nil || p.Receipt == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	x.Destroy(soon(t))
	<-x.Ended()
	all = a.last()
	if len(all) != 3 {
		t.Fatalf("%d events", len(all))
	}
	for i, kind := range []sandbox.AuditKind{sandbox.AuditSandboxCreated, sandbox.AuditProcess, sandbox.AuditSandboxEnded} {
		if e := all[i].Entry; e.Kind != kind || e.Tenant != "bob" || e.Key != "key-1" || e.Isolation.Driver != "fake" {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if e := all[1].Entry; e.Sandbox != x.ID() || e.ID != p.ID || string(all[1].Parts["stdout"]) != "42\n" {
		t.Errorf("%+v", e)
	}
}

// Where the operator says so, what cannot be recorded is not begun, and a result that
// could not be recorded is nobody's to see.
func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	a := newAudited(t, true)
	s := serve(t, engine.Options{Auditor: a}, prints)
	x := s.create(t, sandbox.Create{})
	a.mu.Lock()
	a.broken = &sandbox.Error{Code: sandbox.CodeAuditUnavailable, Message: "the disk is full"}
	a.mu.Unlock()
	if r, err := s.Run(soon(t), asks("alice", "a")); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("a run: %+v, %v", r, err)
	}
	if _, err := s.Start(soon(t), asks("alice", "a")); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("one that nobody waits for: %v", err)
	}
	if _, err := s.Create(soon(t), "alice", sandbox.Create{}); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("a sandbox: %v", err)
	}
	if _, err := x.Exec(soon(t), sandbox.Command{Args: []string{"say"}}); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("a process: %v", err)
	}
	a.mu.Lock()
	a.begun = true
	a.mu.Unlock()
	if r, err := s.Run(soon(t), asks("alice", "a")); r != nil || code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("one that had begun: %+v, %v", r, err)
	}
	page, err := s.Runs(soon(t), "alice", records.Query{})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	kept, err := s.RunRecord(soon(t), "alice", page.Items[0].ID)
	if err != nil || kept.Result == nil || kept.Result.Status != sandbox.StatusError || kept.Result.Stdout != "" || kept.Result.Error.Code != sandbox.CodeAuditUnavailable {
		t.Errorf("what is kept of it: %+v, %v", kept.Result, err)
	}
}

// Where the operator lets programs run all the same, each result says that its record is
// missing.
func TestWhatIsNotRecordedSaysSo(t *testing.T) {
	a := newAudited(t, false)
	a.broken = errors.New("the disk is full")
	s := serve(t, engine.Options{Auditor: a}, prints)
	r, err := s.Run(soon(t), asks("alice", "a"))
	if err != nil || r.Stdout != "42\n" || r.Receipt != nil || r.ReceiptMissing == nil {
		t.Errorf("%+v, %v", r, err)
	}
	x := s.create(t, sandbox.Create{})
	if p, err := x.Exec(soon(t), sandbox.Command{Args: []string{"say"}}); err != nil || p.Receipt != nil || p.ReceiptMissing == nil {
		t.Errorf("%+v, %v", p, err)
	}
}

// A run whose server died is recorded as lost by the next one.
func TestLostRunsAreRecorded(t *testing.T) {
	store := memstore.New(memstore.Options{})
	if _, err := store.BeginRun(t.Context(), records.Run{ID: "run_a", Tenant: "alice"}); err != nil {
		t.Fatal(err)
	}
	a := newAudited(t, true)
	serve(t, engine.Options{Auditor: a, Store: store}, prints)
	all := a.last()
	if len(all) != 1 || all[0].Entry.ID != "run_a" || all[0].Entry.Cause != sandbox.CauseLost || all[0].Entry.Tenant != "alice" {
		t.Errorf("%+v", all)
	}
}

// endsAfterItsEntry wants the end of a sandbox to be in the log before it is in the store:
// whoever is killed in between has the next process say it.
func endsAfterItsEntry(t *testing.T, a *audited, store *memstore.Store, tenant string) {
	t.Helper()
	a.told = func(e records.Event) {
		if e.Entry.Kind != sandbox.AuditSandboxEnded {
			return
		}
		if info, err := store.LoadSandbox(t.Context(), tenant, e.Entry.ID); err != nil || info.State == sandbox.StateEnded {
			t.Errorf("the store has it before the log: %+v, %v", info, err)
		}
	}
}

// The end of a sandbox is recorded before it is saved, also by the next process; whose
// sandbox it was is known then, too, and where its machine outlives us.
func TestEndsAreRecordedFirst(t *testing.T) {
	a := newAudited(t, true)
	s := serve(t, engine.Options{Auditor: a}, prints)
	endsAfterItsEntry(t, a, s.store, "bob")
	x, err := s.Create(records.WithKey(soon(t), "key-1"), "bob", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	left, _, err := s.store.Unfinished(t.Context())
	if err != nil || len(left) != 1 || left[0].Key() != "key-1" {
		t.Fatalf("%+v, %v", left, err)
	}
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	if all := a.last(); len(all) != 2 {
		t.Errorf("%d events", len(all))
	}

	d := &outliving{keeping: &keeping{Driver: fake.New(fake.Options{}), ids: []string{"m0"}}}
	if d.machine, err = d.Create(t.Context(), driver.Plan{ID: "m0"}); err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	endsAfterItsEntry(t, a, store, "bob")
	kept := sandbox.Info{ID: "sbx_0", State: sandbox.StateRunning, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour), IdleMS: 3_600_000}
	if err := errors.Join(
		store.SaveSandbox(t.Context(), "bob", kept), store.SaveMachine(t.Context(), "bob", "sbx_0", records.Machine{Key: "key-2", Driver: "fake", ID: "m0"}),
		store.SaveSandbox(t.Context(), "bob", left[0].Info), store.SaveMachine(t.Context(), "bob", x.ID(), *left[0].Machine),
	); err != nil {
		t.Fatal(err)
	}
	next := serve(t, engine.Options{Auditor: a, Store: store, Drivers: []driver.Driver{d}}, nil)
	x, err = next.Sandbox("bob", "sbx_0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	all := a.last()
	if len(all) != 2 {
		t.Fatalf("%d events", len(all))
	}
	for i, want := range []struct {
		id, key string
		cause   sandbox.CauseKind
	}{{left[0].Info.ID, "key-1", sandbox.CauseLost}, {"sbx_0", "key-2", sandbox.CauseDestroyed}} {
		if e := all[i].Entry; e.Kind != sandbox.AuditSandboxEnded || e.ID != want.id || e.Key != want.key || e.Cause != want.cause {
			t.Errorf("%+v", e)
		}
	}
}

// A sandbox that is made is recorded with what it may and with what it began.
func TestSandboxIsRecordedAsItWasAskedFor(t *testing.T) {
	a := newAudited(t, true)
	s := serve(t, engine.Options{Auditor: a}, prints)
	x := s.create(t, sandbox.Create{Env: map[string]string{"K": "v"}})
	snap := snapshot(t, x)
	s.create(t, sandbox.Create{Snapshot: snap.ID})
	if _, err := s.Fork(soon(t), x, sandbox.ForkSandbox{}); err != nil {
		t.Fatal(err)
	}
	all := a.last()
	if len(all) != 3 {
		t.Fatalf("%d events", len(all))
	}
	for i, origin := range []string{"", snap.ID, x.ID()} {
		if e := all[i]; e.Entry.Kind != sandbox.AuditSandboxCreated || e.Entry.Origin != origin || string(e.Parts["env"]) != `{"K":"v"}` {
			t.Errorf("%d: %+v with %q", i, e.Entry, e.Parts)
		}
	}
}

// What asks whether a sandbox is ready is not recorded, what its template starts is; and that
// nothing can be recorded is no fault of the template's.
func TestAskingIsNotRecorded(t *testing.T) {
	a := newAudited(t, true)
	with := image.Start{Command: "serve", Ready: "ask", WithinMS: 60_000}
	b := beginsWith(t, engine.Options{Auditor: a}, with, staysUp, func(_ *fake.Process, n int64) fake.Exit {
		return fake.Exit{Code: map[bool]int{true: 1}[n < 3]}
	})
	x := b.create(t, sandbox.Create{})
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	var kinds []sandbox.AuditKind
	for _, e := range a.last() {
		kinds = append(kinds, e.Entry.Kind)
	}
	if want := []sandbox.AuditKind{sandbox.AuditSandboxCreated, sandbox.AuditProcess, sandbox.AuditSandboxEnded}; !slices.Equal(kinds, want) {
		t.Errorf("%v", kinds)
	}

	a.told = func(records.Event) {
		a.broken = &sandbox.Error{Code: sandbox.CodeAuditUnavailable, Message: "the disk is full"}
		a.told = nil
	}
	if _, err := b.Create(soon(t), "alice", sandbox.Create{}); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("%v", err)
	}
}
