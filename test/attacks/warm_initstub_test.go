//go:build linux

package attacks

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/native"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// counting is a driver that counts how many agents of forked runs were started,
// and how many guests ended without one.
type counting struct {
	*native.Driver
	started, ended atomic.Int64
}

func (c *counting) Abilities() driver.Abilities {
	can := c.Driver.Abilities()
	can.Zygoter = c
	return can
}

func (c *counting) NewZygote(ctx context.Context, plan driver.Plan, spec zygote.Spec) (driver.Zygote, error) {
	p, err := c.Driver.NewZygote(ctx, plan, spec)
	return &countingZygote{p, c}, err
}

type countingZygote struct {
	driver.Zygote
	counting *counting
}

func (p *countingZygote) Fork(ctx context.Context, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	m, f, err := p.Zygote.Fork(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	return &countingMachine{m, p.counting}, f, nil
}

type countingMachine struct {
	driver.Machine
	counting *counting
}

func (m *countingMachine) Abilities() driver.MachineAbilities {
	can := m.Machine.Abilities()
	can.InitStub = m
	return can
}

func (m *countingMachine) Dial(ctx context.Context) (driver.Conn, error) {
	m.counting.started.Add(1)
	return m.Machine.Dial(ctx)
}

func (m *countingMachine) KillGuest(ctx context.Context) error {
	m.counting.ended.Add(1)
	return m.Machine.Abilities().InitStub.KillGuest(ctx)
}

// fakeValues is the beginning of a program that puts something where values are
// looked for.
const fakeValues = `
import os, pinfold_harness
name = os.path.dirname(pinfold_harness.__file__) + "/results.jsonl"
`

// A forked run starts its sandbox's agent when it has files or many values to bring in or out, once,
// and for nothing else.
func TestRunsThatStartTheAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's interpreters are not forked")
	}
	ledger.Check(t)
	a := newArena(t, "")
	c := &counting{Driver: a.driver.(*native.Driver)}
	e := engine.New(engine.Options{Drivers: []driver.Driver{c}, Template: imagetest.Templates, Host: os.DirFS("/")})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.SetPool(t.Context(), sandbox.PoolSpec{Name: "py", Language: "python", Min: 1, Limits: warmLimits}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		spec     sandbox.Spec
		started  int64
		ended    bool // without the agent
		stdout   string
		artifact string
		value    bool
	}{
		{"prints", sandbox.Spec{Code: "print(1)"}, 0, false, "1\n", "", false},
		{"fails", sandbox.Spec{Code: "import os; os._exit(print(1, flush=True) or 3)"}, 0, false, "1\n", "", false},
		{"reads", sandbox.Spec{Code: "print(input())", Stdin: "1"}, 0, false, "1\n", "", false},
		{"leaves a process", sandbox.Spec{Code: "import os, time\nif os.fork() == 0:\n  os.close(1); os.close(2); time.sleep(60)\nelse: print(1)"}, 0, false, "1\n", "", false},
		{"takes too long", sandbox.Spec{Code: "print(1, flush=True)\nimport time; time.sleep(60)", Limits: sandbox.Limits{WallTimeMS: 2000}}, 0, true, "1\n", "", false},
		{"gets a file", sandbox.Spec{Code: "print(open('in').read())", Files: []sandbox.File{{Path: "in", Content: "1"}}}, 1, false, "1\n", "", false},
		{"makes a file", sandbox.Spec{Code: "print(1); open('out', 'w').write('2')"}, 1, true, "1\n", "out", false},
		{"is asked for files", sandbox.Spec{Code: "print(1)", Artifacts: []string{"out"}}, 1, true, "1\n", "", false},
		{"bombs, and makes a file", sandbox.Spec{Code: "import os\nopen('out', 'w').write('2'); print(1, flush=True)\nif os.fork() == 0:\n  while True:\n    try: os.fork()\n    except OSError: pass\nimport time; time.sleep(.1)"}, 1, true, "1\n", "out", false},
		{"leaves a value", sandbox.Spec{Code: "6 * 7"}, 0, false, "", "", true},
		{"leaves more than the host reads", sandbox.Spec{Code: fakeValues + "n = open(name, 'w').write('x' * (2 << 20))"}, 1, true, "", "", false},
		{"leaves a pipe", sandbox.Spec{Code: fakeValues + "os.mkfifo(name)"}, 1, true, "", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			waitFull(t, e)
			spec := test.spec
			wall := spec.Limits.WallTimeMS
			spec.Language, spec.Limits = "python", warmLimits
			spec.Limits.WallTimeMS = wall
			started, ended := c.started.Load(), c.ended.Load()
			r, err := e.Run(t.Context(), runs.Request{Spec: spec})
			if err != nil {
				t.Fatal(err)
			}
			if !r.Warm || r.Stdout != test.stdout || len(r.Results) > 0 != test.value || len(r.ArtifactsSkipped) > 0 {
				t.Errorf("%+v", r)
			}
			if out := len(r.Artifacts) == 1 && r.Artifacts[0].Path == test.artifact; out != (test.artifact != "") {
				t.Errorf("the files are %+v", r.Artifacts)
			}
			if started = c.started.Load() - started; started != test.started {
				t.Errorf("the agent was started %d times, not %d", started, test.started)
			}
			if (c.ended.Load() > ended) != test.ended {
				t.Errorf("that the guest was ended without it should be %t", test.ended)
			}
		})
	}
}
