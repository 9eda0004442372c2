package engine_test

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/audit"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// keepsTexts is an auditor of a log that keeps texts of at most so many bytes.
func keepsTexts(t *testing.T, most int64) (*audited, *audit.Log) {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(t.TempDir(), audit.Dir), KeepTexts: true, TextBytes: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	// From now on its file of texts is open: no run has left that.
	if _, err := l.Record(t.Context(), records.Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditRun}, Parts: map[string][]byte{"code": []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	return &audited{Auditor: l, strict: true}, l
}

// echoes prints what it was given, and a line that says how often.
func echoes(moved *atomic.Bool) func(driver.Plan) fake.Script {
	return func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			in, _ := io.ReadAll(p.Stdin)
			_, _ = fmt.Fprintf(p.Stdout, "%q %s %s\n", p.Args[1:], slices.Sorted(slices.Values(p.Env)), in)
			if moved.Load() {
				_, _ = io.WriteString(p.Stdout, "\x1b[31mmoved\n")
				return fake.Exit{Code: 3}
			}
			return fake.Exit{}
		}}
	}
}

func asksMuch(tenant string) runs.Request {
	return runs.Request{Tenant: tenant, Spec: sandbox.Spec{
		Language: "sh", Code: "cat", Args: []string{"one", "two"}, Env: map[string]string{"A": "1"}, Stdin: "in\n", Metadata: map[string]string{"job": "1"},
		Files: []sandbox.File{{Path: "data.txt", Content: "x", Executable: true}}, Limits: sandbox.Limits{MemoryBytes: 64 << 20}, Isolation: "process", OutputBase64: true,
	}}
}

// A run is repeated with all that it was asked for, as a run of its own that says of which
// one, and what differs.
func TestReplay(t *testing.T) {
	var moved atomic.Bool
	a, _ := keepsTexts(t, 1<<20)
	s := serve(t, engine.Options{Auditor: a, Version: "1"}, echoes(&moved))
	first, err := s.Run(soon(t), asksMuch("alice"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Replay(soon(t), "alice", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := again.Replay; r == nil || !r.Same || r.Of != first.ID || len(r.Differences)+len(r.Environment) != 0 || again.ID == first.ID || again.Metadata["job"] != "1" || !strings.Contains(again.Stdout, "in\n") {
		t.Errorf("%+v\n%+v", again.Replay, again)
	}
	kept, err := s.RunRecord(soon(t), "alice", again.ID)
	if err != nil || kept.Result.Replay == nil || kept.Result.Replay.Of != first.ID {
		t.Errorf("its record: %+v, %v", kept.Result, err)
	}
	events := a.last()
	if len(events) != 2 || events[1].Entry.Origin != first.ID || events[1].Entry.ID != again.ID {
		t.Errorf("its entry: %+v", events)
	}
	for name, part := range events[0].Parts { // what the new run was asked for is what the old one was
		is := strings.Replace(string(events[1].Parts[name]), `"driver":"fake",`, "", 1) // the one that it had
		if name != "isolation" && string(part) != is {
			t.Errorf("%s: %s, was %s", name, is, part)
		}
	}

	moved.Store(true)
	third, err := s.Replay(soon(t), "alice", again.ID) // of a replay, too
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, d := range third.Replay.Differences {
		what = append(what, d.What)
	}
	if third.Replay.Same || third.Replay.Of != again.ID || !slices.Equal(what, []string{"status", "exit_code", "stdout"}) || !strings.Contains(third.Replay.Differences[2].Diff, `+\x1b[31mmoved`) {
		t.Errorf("%+v", third.Replay)
	}
}

// What a run is made with, and is not as it was, is said.
func TestReplayElsewhere(t *testing.T) {
	var moved atomic.Bool
	a, _ := keepsTexts(t, 1<<20)
	id := "one"
	template := func(string) (image.Template, error) {
		host, err := image.Host(fstest.MapFS{"usr/bin/sh": &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}})
		host.ID = id
		return host, err
	}
	s := serve(t, engine.Options{Auditor: a, Version: "1", Template: template}, echoes(&moved))
	first, err := s.Run(soon(t), asksMuch("alice"))
	if err != nil {
		t.Fatal(err)
	}
	id = "two"
	time.Sleep(1100 * time.Millisecond) // a plan is remembered for a second
	again, err := s.Replay(soon(t), "alice", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := again.Replay; !r.Same || len(r.Environment) != 1 || r.Environment[0] != (sandbox.Difference{What: "template", Was: "one", Is: "two"}) {
		t.Errorf("%+v", r)
	}
}

// Where it is not known what was asked for, it is said why, and nothing runs.
func TestReplayRefused(t *testing.T) {
	var moved atomic.Bool
	refused := func(s *served, tenant, id, code, say string) {
		t.Helper()
		made := s.driver.Living()
		r, err := s.Replay(soon(t), tenant, id)
		e := sandbox.AsError(err)
		if r != nil || e == nil || e.Code != code || !strings.Contains(e.Message+" "+e.Hint, say) || s.driver.Living() != made {
			t.Errorf("want %s %q: %+v, %v", code, say, r, err)
		}
	}
	without := serve(t, engine.Options{}, echoes(&moved))
	r, err := without.Run(soon(t), asksMuch("alice"))
	if err != nil {
		t.Fatal(err)
	}
	refused(without, "alice", r.ID, sandbox.CodeConflict, "audit.enabled")
	refused(without, "bob", r.ID, sandbox.CodeNotFound, "")
	refused(without, "alice", "run_none", sandbox.CodeNotFound, "")

	digests := serve(t, engine.Options{Auditor: newAudited(t, true)}, echoes(&moved))
	if r, err = digests.Run(soon(t), asksMuch("alice")); err != nil {
		t.Fatal(err)
	}
	refused(digests, "alice", r.ID, sandbox.CodeConflict, "audit.texts")

	small, _ := keepsTexts(t, 10)
	large := serve(t, engine.Options{Auditor: small}, echoes(&moved))
	if r, err = large.Run(soon(t), asksMuch("alice")); err != nil {
		t.Fatal(err)
	}
	refused(large, "alice", r.ID, sandbox.CodeConflict, "audit.text_bytes")

	a, l := keepsTexts(t, 1<<20)
	s := serve(t, engine.Options{Auditor: a}, echoes(&moved))
	if r, err = s.Run(soon(t), asksMuch("alice")); err != nil {
		t.Fatal(err)
	}
	refused(s, "bob", r.ID, sandbox.CodeNotFound, "")
	first := r.ID
	index := r.Receipt.Index
	streamed := asksMuch("alice")
	streamed.Spec.Stdin, streamed.Streams.Stdin = "", strings.NewReader("by a stream")
	if r, err = s.Run(soon(t), streamed); err != nil {
		t.Fatal(err)
	}
	refused(s, "alice", r.ID, sandbox.CodeConflict, "as a stream was not kept: stdin")

	open := asksMuch("alice") // an open input to which nothing came is none
	open.Spec.Stdin, open.OpenStdin = "", true
	started := s.start(t, open)
	if err := s.CloseRunStdin(soon(t), "alice", started.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AwaitRun(soon(t), "alice", started.ID); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Replay(soon(t), "alice", started.ID); err != nil || !again.Replay.Same {
		t.Errorf("without input: %+v, %v", again, err)
	}

	if n, err := l.Forget([]int64{index}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	refused(s, "alice", first, sandbox.CodeConflict, "audit.texts_retention")
}
