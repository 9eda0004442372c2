//go:build linux

package native

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/language"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

func pythonParent(t testing.TB, modules ...string) driver.ParentSpec {
	t.Helper()
	python, err := language.Find("python")
	if err != nil {
		t.Fatal(err)
	}
	step, _, err := python.ParentStep(modules, sandbox.DefaultLimits(), func([]string) (string, bool) { return "/usr/bin/python3", true })
	if err != nil {
		t.Fatal(err)
	}
	setup, _ := json.Marshal(map[string]any{"modules": modules})
	spec := driver.ParentSpec{Args: step.Args, Env: step.Env, Setup: setup, Home: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID,
		Limits: []driver.Rlimit{{Resource: 7, Value: 1024}, {Resource: 1, Value: 1 << 30}}}
	for _, f := range step.Files {
		spec.Files = append(spec.Files, driver.ParentFile{Path: f.Path, Content: f.Content})
	}
	return spec
}

func TestFork(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d := newDriver(t, state)
	plan := planFor(t, d, "parent-1")
	began := time.Now()
	p, err := d.NewParent(t.Context(), plan, pythonParent(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Log("parent", time.Since(began))
	defer func() {
		if err := p.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for i := range 3 {
		began = time.Now()
		m, f, err := p.Fork(t.Context(), planFor(t, d, fmt.Sprintf("fork-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Log("fork", time.Since(began), f.PID)
		g, err := dial(t, m, plan)
		if err != nil {
			t.Fatal(err)
		}
		code := "import os,sys\nprint(os.getpid(), os.getppid(), os.getuid(), os.listdir('/'), os.getcwd(), open('/proc/self/status').read())\nos.system('id; ls -la / /proc/self/fd; cat /proc/self/cgroup')\nos._exit(7)\n"
		if err := g.WriteFile(t.Context(), "main.py", 0o644, int64(len(code)), stringsReader(code)); err != nil {
			t.Fatal(err)
		}
		h := `{"file":"main.py","args":[],"env":{},"allowed_imports":null,"results":true}`
		fmt.Fprintf(f.Stdin, "%08x%s", len(h), h)
		f.Stdin.Close()
		out, _ := io.ReadAll(f.Stdout)
		errs, _ := io.ReadAll(f.Stderr)
		e := <-f.Exited
		if i == 0 {
			t.Logf("%s %s", out, errs)
		}
		t.Logf("%+v %d", e, len(out))
		began = time.Now()
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Log("destroy", time.Since(began))
		g.Close()
		f.Stdout.Close()
		f.Stderr.Close()
	}
}

func stringsReader(s string) io.Reader { return strings.NewReader(s) }

func dial(t testing.TB, m driver.Machine, plan driver.Plan) (*guest.Guest, error) {
	conn, err := m.Dial(t.Context())
	if err != nil {
		return nil, err
	}
	return guest.New(t.Context(), conn, wire.Hello{Version: wire.Version, UID: sandbox.UID, GID: sandbox.GID, SwitchUser: plan.SwitchUser, Home: sandbox.Home})
}
