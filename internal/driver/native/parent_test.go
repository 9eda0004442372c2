//go:build linux

package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/language"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// newPythonParent starts a parent with modules loaded. Without root there is
// none, which is a result too.
func newPythonParent(t testing.TB, d *Driver, modules ...string) (driver.Parent, driver.Plan, error) {
	t.Helper()
	report, err := d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Blocked != nil {
		drivertest.Missing(t.(*testing.T), "the driver is blocked here: %v (%s)", report.Blocked, report.Blocked.Hint)
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults(), report, "parent")
	if err != nil {
		t.Fatal(err)
	}
	python, err := language.Find("python")
	if err != nil {
		t.Fatal(err)
	}
	template, err := hostTemplate()
	if err != nil {
		t.Fatal(err)
	}
	step, _, err := python.ParentStep(modules, sandbox.DefaultLimits(), func(names []string) (string, bool) { return template.Lookup(os.DirFS("/"), names) })
	if err != nil {
		t.Fatal(err)
	}
	setup, err := json.Marshal(map[string]any{"modules": modules})
	if err != nil {
		t.Fatal(err)
	}
	spec := driver.ParentSpec{
		Args: step.Args, Env: step.Env, Setup: setup, Home: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID,
		Limits: []driver.Rlimit{{Resource: 7, Value: 1024}},
	}
	for _, f := range step.Files {
		spec.Files = append(spec.Files, driver.ParentFile{Path: f.Path, Content: f.Content})
	}
	p, err := d.NewParent(t.Context(), plan, spec)
	if err == nil {
		t.Cleanup(func() {
			if err := p.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	return p, plan, err
}

// tell hands a fork its program and returns what it prints and how it ends.
func tell(t testing.TB, f *driver.Forked, code string) (stdout, stderr string, exit driver.ForkExit) {
	t.Helper()
	job, err := json.Marshal(map[string]any{"file": "main.py", "code": code, "args": nil, "env": nil, "allowed_imports": nil, "results": false})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(f.Stdin, "%08x%s", len(job), job); err != nil {
		t.Fatal(err)
	}
	_ = f.Stdin.Close()
	defer f.Stdout.Close()
	defer f.Stderr.Close()
	out, err := io.ReadAll(f.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(f.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), string(said), <-f.Exited
}

// Forks run one program each, end as programs end, and leave nothing; nor does
// their parent.
func TestFork(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	p, plan, err := newPythonParent(t, d, "json")
	if !d.host.ids.root {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("a parent without root: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		code, out string
		exit      driver.ForkExit
	}{
		{"import json, os\nprint(json.dumps([os.getuid(), os.getcwd(), os.listdir('.')]))\nos._exit(7)", `[1000, "/home/user", ["main.py"]]` + "\n", driver.ForkExit{Code: 7}},
		{"import os\nos.abort()", "", driver.ForkExit{Signal: 6}},
		{"import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "", driver.ForkExit{Signal: 15}},
		{"print(sorted(__import__('os').listdir('/proc/self/fd')))", "['0', '1', '2', '3']\n", driver.ForkExit{}},
	} {
		plan.ID = fmt.Sprintf("fork-%d", i)
		m, f, err := p.Fork(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		out, said, exit := tell(t, f, test.code)
		exit.CPU = 0
		if out != test.out && !strings.Contains(test.code, "abort") || exit != test.exit {
			t.Errorf("%s: %+v, %q, %q", test.code, exit, out, said)
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForkAsUser(t *testing.T) {
	asuser.Rerun(t, "TestFork", []string{agenttest.Agent, drivertest.Probe}, nil)
}

// What a parent cannot load, or cannot be forked with, is said.
func TestUnfitParents(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	_, _, err := newPythonParent(t, d, "no_such_module")
	if errors.Is(err, errors.ErrUnsupported) {
		return // not root
	}
	var unfit *driver.UnfitError
	if !errors.As(err, &unfit) || !unfit.Load || !strings.Contains(unfit.Why, "no_such_module") {
		t.Fatalf("%v", err)
	}
}

// When a parent is killed its forks' machines die, and can be destroyed.
func TestKilledParent(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	p, plan, err := newPythonParent(t, d)
	if errors.Is(err, errors.ErrUnsupported) {
		return // not root
	}
	if err != nil {
		t.Fatal(err)
	}
	plan.ID = "fork"
	m, f, err := p.Fork(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.(*parent).machine.child.Kill(); err != nil {
		t.Fatal(err)
	}
	if e, ok := <-f.Exited; ok {
		t.Errorf("somebody knows how the fork ended: %+v", e)
	}
	<-m.Dead()
	if _, _, err := p.Fork(t.Context(), plan); err == nil {
		t.Error("a dead parent was forked")
	}
	for _, file := range []io.Closer{f.Stdin, f.Stdout, f.Stderr} {
		_ = file.Close()
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}
