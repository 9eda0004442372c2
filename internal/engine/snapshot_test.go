package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

func put(t *testing.T, x *living.Sandbox, name, text string) {
	t.Helper()
	if err := x.WriteFile(soon(t), name, 0o640, int64(len(text)), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// holds wants a sandbox to have a file with a text; "": it has none.
func holds(t *testing.T, x *living.Sandbox, name, want string) {
	t.Helper()
	var b strings.Builder
	_, err := x.ReadFile(soon(t), name, 0, -1, &b)
	if want == "" && code(err) == sandbox.CodeFileNotFound {
		return
	}
	if err != nil || b.String() != want {
		t.Errorf("%s has %q in %s, want %q: %v", x.ID(), b.String(), name, want, err)
	}
}

func snapshot(t *testing.T, x *living.Sandbox) sandbox.Snapshot {
	t.Helper()
	s, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is made of a snapshot begins with what the sandbox held then; forks with what it
// holds now; and each goes its own way.
func TestSnapshotAndFork(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{Metadata: map[string]string{"job": "7"}, Env: map[string]string{"K": "v"}, Limits: sandbox.Limits{DiskBytes: 64 << 20}})
	put(t, x, "dir/a", "first")
	snap := snapshot(t, x)
	if snap.Sandbox != x.ID() || !slices.Equal(snap.Holds, []string{sandbox.SnapshotFiles}) || snap.Driver != "fake" || snap.Files != 2 || snap.Bytes == 0 || snap.ExpiresAt.Before(time.Now().Add(time.Hour)) {
		t.Errorf("%+v", snap)
	}
	put(t, x, "dir/a", "second")
	of := s.create(t, sandbox.Create{Snapshot: snap.ID})
	holds(t, of, "dir/a", "first")
	if i := of.Info(); i.Snapshot != snap.ID || i.Metadata["job"] != "7" || i.Limits.DiskBytes != 64<<20 {
		t.Errorf("%+v", i)
	}
	if p, err := of.Exec(soon(t), sandbox.Command{Args: []string{"env"}}); err != nil || !strings.Contains(p.Stdout, "K=v") {
		t.Errorf("%+v, %v", p, err)
	}
	forks, err := s.Fork(soon(t), x, sandbox.ForkSandbox{Count: 3, Metadata: map[string]string{"own": "1"}})
	if err != nil || len(forks) != 3 {
		t.Fatal(len(forks), err)
	}
	for i, f := range forks {
		holds(t, f, "dir/a", "second")
		put(t, f, "dir/a", fmt.Sprint(i))
		if info := f.Info(); info.ForkOf != x.ID() || info.Metadata["own"] != "1" || info.Metadata["job"] != "" || info.Isolation.Driver != "fake" {
			t.Errorf("%+v", info)
		}
	}
	for i, f := range forks {
		holds(t, f, "dir/a", fmt.Sprint(i))
	}
	holds(t, x, "dir/a", "second")
	if all, err := s.Snapshots(soon(t), "alice"); err != nil || len(all) != 1 {
		t.Errorf("a fork left a snapshot: %+v, %v", all, err)
	}
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Fatal(err)
	}
	holds(t, s.create(t, sandbox.Create{Snapshot: snap.ID, Metadata: map[string]string{}}), "dir/a", "first")
	if err := s.RemoveSnapshot(soon(t), "alice", snap.ID); err != nil {
		t.Fatal(err)
	}
	holds(t, of, "dir/a", "first")
	if _, err := s.Create(soon(t), "alice", sandbox.Create{Snapshot: snap.ID}); code(err) != sandbox.CodeNotFound || sandbox.AsError(err).Field != "snapshot" {
		t.Errorf("of a snapshot that is gone: %v", err)
	}
}

// While a sandbox is copied, what is asked of it waits, the wall time of its processes
// stands, and it says that it runs. One that is paused stays so.
func TestSnapshotStandsStill(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Snapshot: func(context.Context) error { begun <- struct{}{}; <-goOn; return nil }}
	})
	x := s.create(t, sandbox.Create{})
	p, err := x.Start(soon(t), sandbox.Command{Args: []string{"sleep"}, WallTimeMS: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	go func() { _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{}); taken <- err }()
	<-begun
	before := p.Info().WallMS
	asked := make(chan error, 1)
	go func() { asked <- x.WriteFile(soon(t), "late", 0o600, 1, strings.NewReader("x")) }()
	select {
	case err := <-asked:
		t.Fatalf("done while it stands still: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if after := p.Info().WallMS; after != before || x.Info().State != sandbox.StateRunning {
		t.Errorf("%d, then %d ms, and it is %s", before, after, x.Info().State)
	}
	goOn <- struct{}{}
	if err := errors.Join(<-taken, <-asked); err != nil {
		t.Error(err)
	}
	eventually(t, "its time goes on", func() bool { return p.Info().WallMS > before })
	if _, err := x.Pause(soon(t)); err != nil {
		t.Fatal(err)
	}
	go func() { <-begun; goOn <- struct{}{} }()
	if snapshot(t, x); x.Info().State != sandbox.StatePaused {
		t.Errorf("a paused sandbox is %s after a snapshot", x.Info().State)
	}
	if _, err := x.Resume(soon(t)); err != nil {
		t.Fatal(err)
	}
	go func() { _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{}); taken <- err }()
	<-begun
	if _, err := x.Destroy(soon(t)); err != nil {
		t.Error(err)
	}
	goOn <- struct{}{}
	if err := <-taken; code(err) != sandbox.CodeGone {
		t.Errorf("of a sandbox that ended meanwhile: %v", err)
	}
	if all, err := s.Snapshots(soon(t), "alice"); err != nil || len(all) != 2 {
		t.Errorf("%d, %v", len(all), err)
	}
}

// What cannot be is refused, with what to do about it, and leaves nothing.
func TestSnapshotRefusals(t *testing.T) {
	s := serve(t, engine.Options{Snapshots: snapshots.Options{PerTenant: 2, Bytes: 1 << 20, TenantBytes: 600 << 10, TTL: time.Hour}}, nil)
	x := s.create(t, sandbox.Create{Limits: sandbox.Limits{DiskBytes: 64 << 20}})
	put(t, x, "a", strings.Repeat("x", 200<<10))
	snap := snapshot(t, x)
	for what, c := range map[string]struct {
		ask   sandbox.Create
		code  string
		field string
	}{
		"another template": {sandbox.Create{Snapshot: snap.ID, Template: "other"}, sandbox.CodeConflict, "template"},
		"a smaller disk":   {sandbox.Create{Snapshot: snap.ID, Limits: sandbox.Limits{DiskBytes: 32 << 20}}, sandbox.CodeLimitInvalid, "limits.disk_bytes"},
		"fewer inodes":     {sandbox.Create{Snapshot: snap.ID, Limits: sandbox.Limits{Inodes: 100}}, sandbox.CodeLimitInvalid, "limits.inodes"},
		"no snapshot":      {sandbox.Create{Snapshot: "snp_a"}, sandbox.CodeNotFound, "snapshot"},
	} {
		if _, err := s.Create(soon(t), "alice", c.ask); code(err) != c.code || sandbox.AsError(err).Field != c.field || c.code != sandbox.CodeNotFound && sandbox.AsError(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Create(soon(t), "bob", sandbox.Create{Snapshot: snap.ID}); code(err) != sandbox.CodeNotFound {
		t.Errorf("another tenant's: %v", err)
	}
	if _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{TTLMS: 2 * 3600_000}); code(err) != sandbox.CodeLimitInvalid {
		t.Errorf("for longer than the server keeps one: %v", err)
	}
	put(t, x, "b", strings.Repeat("x", 300<<10))
	if _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{}); code(err) != sandbox.CodeQuotaExceeded {
		t.Errorf("more bytes than a tenant may have: %v", err)
	}
	if _, err := s.Fork(soon(t), x, sandbox.ForkSandbox{}); code(err) != sandbox.CodeQuotaExceeded {
		t.Errorf("a fork of more bytes: %v", err)
	}
	if err := x.Remove(soon(t), "b"); err != nil {
		t.Fatal(err)
	}
	snapshot(t, x)
	if _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{}); code(err) != sandbox.CodeQuotaExceeded {
		t.Errorf("a third one: %v", err)
	}
	y, err := s.Create(soon(t), "bob", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, y, "a", strings.Repeat("x", 500<<10))
	if _, err := y.Snapshot(soon(t), sandbox.TakeSnapshot{}); err != nil {
		t.Errorf("another tenant's share: %v", err)
	}
	z, err := s.Create(soon(t), "carol", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, z, "a", strings.Repeat("x", 400<<10))
	if _, err := z.Snapshot(soon(t), sandbox.TakeSnapshot{}); code(err) != sandbox.CodeInsufficient {
		t.Errorf("more than all may have: %v", err)
	}
	r, err := s.store.LoadSnapshot(soon(t), "alice", snap.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.Image = "another"
	if err := errors.Join(s.store.RemoveSnapshot(soon(t), "alice", snap.ID), s.store.SaveSnapshot(soon(t), r)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(soon(t), "alice", sandbox.Create{Snapshot: snap.ID}); code(err) != sandbox.CodeConflict || sandbox.AsError(err).Hint == "" {
		t.Errorf("of a template that is another now: %v", err)
	}
	if n := s.driver.Living(); n != 3 {
		t.Errorf("%d machines live", n)
	}
	none := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{NoSnapshot: true} })
	if _, err := none.create(t, sandbox.Create{}).Snapshot(soon(t), sandbox.TakeSnapshot{}); code(err) != sandbox.CodeRequirementUnmet || sandbox.AsError(err).Hint == "" {
		t.Errorf("where there is nothing for it: %v", err)
	}
	off := serve(t, engine.Options{Snapshots: snapshots.Options{Bytes: -1}}, nil)
	if _, err := off.Fork(soon(t), off.create(t, sandbox.Create{}), sandbox.ForkSandbox{}); code(err) != sandbox.CodeRequirementUnmet {
		t.Errorf("where they are turned off: %v", err)
	}
}

// A copy that fails is no snapshot, and the sandbox goes on.
func TestSnapshotFails(t *testing.T) {
	why := errors.New("the disk cannot be read")
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
		return fake.Script{Snapshot: func(context.Context) error { return why }}
	})
	x := s.create(t, sandbox.Create{})
	if _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{}); err == nil || !strings.Contains(err.Error(), why.Error()) {
		t.Errorf("%v", err)
	}
	put(t, x, "a", "on")
	if all, err := s.Snapshots(soon(t), "alice"); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A fork makes all or none.
func TestForkAllOrNone(t *testing.T) {
	s := serve(t, engine.Options{Capacity: admission.Capacity{Sandboxes: 3, QueueTimeout: time.Millisecond}}, nil)
	x := s.create(t, sandbox.Create{})
	if _, err := s.Fork(soon(t), x, sandbox.ForkSandbox{Count: 5}); code(err) != sandbox.CodeBusy {
		t.Errorf("%v", err)
	}
	if n := s.driver.Living(); n != 1 {
		t.Errorf("%d machines live", n)
	}
	if forks, err := s.Fork(soon(t), x, sandbox.ForkSandbox{Count: 2}); err != nil || len(forks) != 2 {
		t.Errorf("%v", err)
	}
	if _, err := s.Fork(soon(t), x, sandbox.ForkSandbox{Count: sandbox.MaxForks + 1}); code(err) != sandbox.CodeLimitInvalid {
		t.Errorf("%v", err)
	}
}

// Snapshots outlive their server. What is not whole is collected by the next one, what was
// damaged is never used, and what has expired is gone.
func TestSnapshotsOutlive(t *testing.T) {
	store, dir := memstore.New(memstore.Options{}), filepath.Join(t.TempDir(), "snapshots")
	o := engine.Options{Store: store, Snapshots: snapshots.Options{Dir: dir}}
	var kept, lost, damaged, brief sandbox.Snapshot
	t.Run("the first server", func(t *testing.T) {
		x := serve(t, o, nil).create(t, sandbox.Create{})
		put(t, x, "a", "kept")
		kept, lost, damaged = snapshot(t, x), snapshot(t, x), snapshot(t, x)
		var err error
		if brief, err = x.Snapshot(soon(t), sandbox.TakeSnapshot{TTLMS: 300}); err != nil {
			t.Fatal(err)
		}
	})
	file := func(id string) string { return filepath.Join(dir, id+".files") }
	content, err := os.ReadFile(file(damaged.ID))
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-10] ^= 1
	for name, text := range map[string][]byte{file(damaged.ID): content, filepath.Join(dir, "new-1"): nil, file("snp_nobody"): nil} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(file(lost.ID)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(brief.ExpiresAt))
	s := serve(t, o, nil)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	want := []string{file(kept.ID), file(damaged.ID)}
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("%q, want %q", left, want)
	}
	if all, err := s.Snapshots(soon(t), "alice"); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	holds(t, s.create(t, sandbox.Create{Snapshot: kept.ID}), "a", "kept")
	if _, err := s.Create(soon(t), "alice", sandbox.Create{Snapshot: damaged.ID}); err == nil {
		t.Error("a sandbox was made of a damaged snapshot")
	}
	if n := s.driver.Living(); n != 1 {
		t.Errorf("%d machines live", n)
	}
}
