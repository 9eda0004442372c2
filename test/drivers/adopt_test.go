//go:build linux

package drivers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

// serverEnv names the directory in which this test binary is to be a server that is
// killed: its state lies there, and the programs.
const serverEnv = "PINFOLD_TEST_DRIVERS_SERVER"

// TestMain is the server that killedServer starts, or runs the tests.
func TestMain(m *testing.M) {
	if dirs := strings.Split(os.Getenv(serverEnv), ":"); len(dirs) == 2 {
		fmt.Println(serveUntilKilled(host{dirs[0], dirs[1]}))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveUntilKilled makes a sandbox with a file and a process in it, begins a run, says
// which they are, and waits. It returns only what went wrong.
func serveUntilKilled(h host) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	s, err := store.Open(ctx, filepath.Join(h.dir, "state"))
	if err != nil {
		return err
	}
	e := newEngine(s, h.plain(nil))
	if err := e.Open(ctx); err != nil {
		return err
	}
	sb, err := e.Create(ctx, "alice", sandbox.Create{TTLMS: 600_000, IdleMS: 500_000, Env: map[string]string{"KEPT": "yes"}, Metadata: map[string]string{"a": "b"}})
	if err != nil {
		return err
	}
	if err := sb.WriteFile(ctx, "kept", 0o600, 7, strings.NewReader("content")); err != nil {
		return err
	}
	if _, err := sb.Start(ctx, sandbox.Command{Shell: "echo $$ >pid; exec sleep 600"}); err != nil {
		return err
	}
	run, err := e.Start(ctx, runs.Request{Tenant: "alice", Spec: sandbox.Spec{Language: "sh", Code: "sleep 600"}})
	if err != nil {
		return err
	}
	for ctx.Err() == nil { // until both machines are whole, and the process has begun
		ids, err := h.plain(nil).Abilities().Keeper.List(ctx)
		if err != nil {
			return err
		}
		if _, err := sb.Stat(ctx, "pid"); err == nil && len(ids) == 2 {
			fmt.Println("made", sb.ID(), run.ID)
			<-ctx.Done()
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// killedServer has a server make a sandbox and begin a run, and kills it.
func killedServer(t *testing.T, h host) (sandboxID, runID string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), serverEnv+"="+h.dir+":"+h.programs)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said = append(said, lines.Text())
		if words := strings.Fields(lines.Text()); len(words) == 3 && words[0] == "made" {
			sandboxID, runID = words[1], words[2]
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if sandboxID == "" {
		t.Fatalf("the server said %q", said)
	}
	return sandboxID, runID
}

// restart opens the store and an engine over it, as a server that starts.
func restart(t *testing.T, h host) (*engine.Engine, *store.Store) {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(h.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(s, h.plain(nil))
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, s
}

// A sandbox whose machine outlives the server is there again after the server was
// killed, and after it was stopped and started; what belongs to nothing is gone.
func TestAdopt(t *testing.T) {
	h := newHost(t)
	id, runID := killedServer(t, h)
	for _, was := range []string{"killed", "stopped"} {
		e, s := restart(t, h)
		sb, err := e.Sandbox("alice", id)
		if err != nil {
			t.Fatalf("after the server was %s: %v", was, err)
		}
		info := sb.Info()
		if info.State != sandbox.StateRunning || info.Metadata["a"] != "b" || info.IdleMS != 500_000 || time.Until(info.ExpiresAt) > 10*time.Minute {
			t.Errorf("after the server was %s: %+v", was, info)
		}
		var kept bytes.Buffer
		if _, err := sb.ReadFile(soon(t), "kept", 0, -1, &kept); err != nil || kept.String() != "content" {
			t.Errorf("after the server was %s: %q, %v", was, kept.String(), err)
		}
		p, err := sb.Exec(soon(t), sandbox.Command{Shell: `kill -0 "$(cat pid)" 2>/dev/null && echo old; echo "$KEPT"`})
		if err != nil || p.Stdout != "yes\n" {
			t.Errorf("after the server was %s: %q, %v", was, p.Stdout, err)
		}
		if ids, err := h.plain(nil).Abilities().Keeper.List(t.Context()); err != nil || len(ids) != 1 {
			t.Errorf("after the server was %s the machines are %q, %v", was, ids, err)
		}
		if run, err := e.RunRecord(soon(t), "alice", runID); err != nil || run.Cause != sandbox.CauseLost {
			t.Errorf("after the server was %s the run is %+v, %v", was, run, err)
		}
		// What its new server starts ends with it, too.
		if _, err := sb.Start(soon(t), sandbox.Command{Shell: "echo $$ >pid; exec sleep 600"}); err != nil {
			t.Error(err)
		}
		closed(t, e)
		_ = s.Close()
	}
	e, s := restart(t, h)
	defer s.Close()
	defer closed(t, e)
	sb, err := e.Sandbox("alice", id)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := sb.Destroy(soon(t)); err != nil || info.Cause.Kind != sandbox.CauseDestroyed {
		t.Errorf("%+v, %v", info, err)
	}
	if ids, err := h.plain(nil).Abilities().Keeper.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("after its end the machines are %q, %v", ids, err)
	}
}

// A sandbox whose time runs out while no server is there ends for that reason, as soon as
// there is one.
func TestExpiredMeanwhile(t *testing.T) {
	h := newHost(t)
	id, _ := killedServer(t, h)
	before, err := store.Open(t.Context(), filepath.Join(h.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := before.LoadSandbox(t.Context(), "alice", id)
	if err != nil {
		t.Fatal(err)
	}
	info.ExpiresAt = time.Now().Add(-time.Second)
	if err := before.SaveSandbox(t.Context(), "alice", info); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	e, s := restart(t, h)
	defer s.Close()
	defer closed(t, e)
	for ctx := soon(t); info.State != sandbox.StateEnded && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if info, err = e.SandboxInfo(ctx, "alice", id); err != nil {
			t.Fatal(err)
		}
	}
	if info.State != sandbox.StateEnded || info.Cause.Kind != sandbox.CauseTTL {
		t.Errorf("%+v", info)
	}
	if ids, err := h.plain(nil).Abilities().Keeper.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("after its end the machines are %q, %v", ids, err)
	}
}

// What cannot be adopted is recorded as lost, once, and leaves nothing.
func TestNotAdopted(t *testing.T) {
	h := newHost(t)
	id, _ := killedServer(t, h)
	d := h.plain(nil)
	stranger := newEngine(nil, d) // knows nothing of what belongs to whom
	if err := stranger.Open(soon(t)); err != nil {
		t.Error(err)
	}
	closed(t, stranger)
	ids, err := d.Abilities().Keeper.List(t.Context())
	if err != nil || len(ids) != 2 {
		t.Fatalf("control: the machines are %q, %v", ids, err)
	}
	for _, machine := range ids {
		m, _, err := d.Abilities().Keeper.Adopt(t.Context(), machine)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e, s := restart(t, h)
	defer s.Close()
	defer closed(t, e)
	info, err := e.SandboxInfo(soon(t), "alice", id)
	if err != nil || info.State != sandbox.StateEnded || info.Cause.Kind != sandbox.CauseLost {
		t.Errorf("%+v, %v", info, err)
	}
	page, err := e.Sandboxes(soon(t), "alice", records.Query{})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
}
