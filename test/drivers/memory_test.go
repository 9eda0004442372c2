//go:build linux

package drivers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/qemu"
	"pinfold/internal/engine"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
	"pinfold/test/kernels/vm"
)

// virtual is a driver of virtual machines.
func virtual(t *testing.T) driver.Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("virtual machines are root's")
	}
	if missing := vm.Missing(); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	kernel, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, warden := agenttest.Bytes(t), agenttest.Program(t, agenttest.Warden)
	return qemu.New(qemu.Options{
		Kernel: kernel, Modules: vm.Modules(kernel), CacheDir: vm.Machines(), StateDir: filepath.Join(t.TempDir(), "qemu"),
		Agent: func() ([]byte, error) { return agent, nil }, Warden: func() ([]byte, error) { return warden, nil },
	})
}

// tells has a process of a sandbox, which is the only one that runs, answer a line.
func tells(t *testing.T, x *living.Sandbox, line string) string {
	t.Helper()
	all := x.Processes()
	i := slices.IndexFunc(all, func(p sandbox.Process) bool { return p.Running })
	if i < 0 {
		t.Fatalf("nothing runs in %s: %+v", x.ID(), all)
	}
	p, err := x.Process(all[i].ID)
	if err != nil {
		t.Fatal(err)
	}
	out := p.Output(1, p.Info().StdoutBytes)
	defer out.Close()
	if _, err := p.WriteStdin(soon(t), strings.NewReader(line+"\n")); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	for !strings.Contains(said.String(), "\n") {
		chunk, _, err := out.Next(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		said.Write(chunk)
	}
	return strings.TrimSpace(said.String())
}

// What is forked of a virtual machine, and what is made of its snapshot, also by the next
// server, goes on with what runs in it: each for itself.
func TestMemory(t *testing.T) {
	o := engine.Options{
		Store: memstore.New(memstore.Options{}), Host: os.DirFS("/"), Template: imagetest.Templates,
		Snapshots: snapshots.Options{Dir: filepath.Join(t.TempDir(), "snapshots"), TenantBytes: 400 << 20},
	}
	serve := func(t *testing.T) *engine.Engine {
		o.Drivers = []driver.Driver{virtual(t)}
		e := engine.New(o)
		t.Cleanup(func() { closed(t, e) })
		if err := e.Open(soon(t)); err != nil {
			t.Fatal(err)
		}
		return e
	}
	const program = "import sys\nsaid = []\nfor line in sys.stdin:\n    said.append(line.strip())\n    with open('said', 'w') as f: f.write(repr(said))\n    print(said, flush=True)"
	var kept sandbox.Snapshot
	var same string
	t.Run("the first server", func(t *testing.T) {
		e := serve(t)
		x, err := e.Create(soon(t), "alice", sandbox.Create{Isolation: sandbox.LevelVM, Metadata: map[string]string{"job": "7"}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := x.Start(soon(t), sandbox.Command{Args: []string{"python3", "-c", program}, Stdin: true, Metadata: map[string]string{"is": "it"}, WallTimeMS: 600_000})
		if err != nil {
			t.Fatal(err)
		}
		tells(t, x, "a")
		if kept, err = x.Snapshot(soon(t), sandbox.TakeSnapshot{}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(kept.Holds, []string{sandbox.SnapshotFiles, sandbox.SnapshotMemory}) || kept.Driver != qemu.Name || kept.Bytes < 10<<20 || kept.PausedMS == 0 {
			t.Errorf("%+v", kept)
		}
		tells(t, x, "b")
		forks, err := e.Fork(soon(t), x, sandbox.ForkSandbox{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range forks {
			if got, want := tells(t, f, fmt.Sprint(i)), fmt.Sprintf("['a', 'b', '%d']", i); got != want {
				t.Errorf("a fork says %s, want %s", got, want)
			}
			all := f.Processes()
			if len(all) != 1 || all[0].ID == p.ID() || all[0].PID != p.Info().PID || all[0].Metadata["is"] != "it" || all[0].WallMS < 1 || !slices.Equal(all[0].Args, p.Info().Args) {
				t.Errorf("%+v, of %+v", all, p.Info())
			}
			if info := f.Info(); info.ForkOf != x.ID() || info.Metadata["job"] != "7" || info.State != sandbox.StateRunning || info.Processes != 1 {
				t.Errorf("%+v", info)
			}
			var text strings.Builder
			if _, err := f.ReadFile(soon(t), "said", 0, -1, &text); err != nil || text.String() != fmt.Sprintf("['a', 'b', '%d']", i) {
				t.Errorf("its file has %s, %v", text.String(), err)
			}
		}
		if got := tells(t, x, "c"); got != "['a', 'b', 'c']" {
			t.Errorf("the first says %s", got)
		}
		one, err := forks[0].Process(forks[0].Processes()[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := one.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		if info, err := one.Wait(soon(t)); err != nil || info.Status != sandbox.StatusSucceeded {
			t.Errorf("the end of its input: %+v, %v", info, err)
		}
		if _, err := forks[1].Destroy(soon(t)); err != nil {
			t.Error(err)
		}
		if r, err := x.Exec(soon(t), sandbox.Command{Shell: "cat said"}); err != nil || r.Stdout != "['a', 'b', 'c']" {
			t.Errorf("%+v, %v", r, err)
		}
		for what, c := range map[string]struct {
			ask         sandbox.Create
			code, field string
		}{
			"more memory":    {sandbox.Create{Limits: sandbox.Limits{MemoryBytes: 512 << 20}}, sandbox.CodeLimitInvalid, "limits.memory_bytes"},
			"another driver": {sandbox.Create{Driver: "native"}, sandbox.CodeConflict, "driver"},
			"another end":    {sandbox.Create{OnOutOfMemory: sandbox.OutOfMemoryProcess}, sandbox.CodeConflict, "on_out_of_memory"},
		} {
			c.ask.Snapshot = kept.ID
			if _, err := e.Create(soon(t), "alice", c.ask); sandbox.AsError(err).Code != c.code || sandbox.AsError(err).Field != c.field {
				t.Errorf("%s: %v", what, err)
			}
		}
		paused(t, x)
		closedBefore(t, e, x)
		for range 4 { // what one takes is bounded for a tenant
			if _, err = x.Snapshot(soon(t), sandbox.TakeSnapshot{}); err != nil {
				break
			}
		}
		if sandbox.AsError(err).Code != sandbox.CodeQuotaExceeded {
			t.Errorf("more than a tenant may have: %v", err)
		}
		if got := tells(t, x, "d"); got != "['a', 'b', 'c', 'd']" {
			t.Errorf("after a snapshot that was refused it says %s", got)
		}
		same = x.Info().Template
	})
	t.Run("the next server", func(t *testing.T) {
		e := serve(t)
		y, err := e.Create(soon(t), "alice", sandbox.Create{Snapshot: kept.ID})
		if err != nil {
			t.Fatal(err)
		}
		if got := tells(t, y, "later"); got != "['a', 'later']" {
			t.Errorf("it says %s", got)
		}
		if info := y.Info(); info.Snapshot != kept.ID || info.Template != same || time.Since(info.CreatedAt) > time.Minute {
			t.Errorf("%+v", info)
		}
		content := filepath.Join(o.Snapshots.Dir, kept.ID+".files")
		b, err := os.ReadFile(content)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-10_000] ^= 1
		if err := os.WriteFile(content, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Create(soon(t), "alice", sandbox.Create{Snapshot: kept.ID}); sandbox.AsError(err).Code != sandbox.CodeStateCorrupt {
			t.Errorf("of one that was damaged: %v", err)
		}
	})
}

// paused wants no snapshot of a virtual machine that is paused, and that it goes on.
func paused(t *testing.T, x *living.Sandbox) {
	t.Helper()
	if _, err := x.Pause(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Snapshot(soon(t), sandbox.TakeSnapshot{}); sandbox.AsError(err).Code != sandbox.CodeConflict || sandbox.AsError(err).Hint == "" {
		t.Errorf("of one that is paused: %v", err)
	}
	if _, err := x.Resume(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// closedBefore has a process go on whose input was closed before, and end.
func closedBefore(t *testing.T, e *engine.Engine, x *living.Sandbox) {
	t.Helper()
	p, err := x.Start(soon(t), sandbox.Command{Shell: "cat; exec sleep 600", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	forks, err := e.Fork(soon(t), x, sandbox.ForkSandbox{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(forks[0].Processes(), func(q sandbox.Process) bool { return q.PID == p.Info().PID })
	if i < 0 {
		t.Fatalf("%+v", forks[0].Processes())
	}
	q, err := forks[0].Process(forks[0].Processes()[i].ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []*living.Process{q, p} {
		if err := one.Signal("KILL"); err != nil {
			t.Error(err)
		}
		if info, err := one.Wait(soon(t)); err != nil || info.Signal != "SIGKILL" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if info := forks[0].Info(); info.State != sandbox.StateRunning {
		t.Errorf("%+v", info)
	}
	if _, err := forks[0].Destroy(soon(t)); err != nil {
		t.Error(err)
	}
}
