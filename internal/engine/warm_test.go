package engine_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// waits plays an interpreter that waits for its program, and a program that is
// started.
func waits(p *fake.Process) fake.Exit {
	at := -1
	for i, a := range p.Args {
		if strings.HasPrefix(a, "pinfold-ready-") {
			at = i
		}
	}
	if at < 0 {
		_, _ = io.WriteString(p.Stdout, "cold")
		return fake.Exit{}
	}
	for _, module := range p.Args[at+1:] {
		if module == "nothere" {
			_, _ = io.WriteString(p.Stderr, "Traceback\nModuleNotFoundError: No module named 'nothere'\n")
			return fake.Exit{Code: 1}
		}
		_, _ = io.WriteString(p.Stdout, "loading "+module+"\n")
	}
	_, _ = io.WriteString(p.Stdout, p.Args[at]+"\n")
	head := make([]byte, 8)
	if _, err := io.ReadFull(p.Stdin, head); err != nil {
		return fake.Exit{}
	}
	n, _ := strconv.ParseInt(string(head), 16, 32)
	body := make([]byte, n)
	_, _ = io.ReadFull(p.Stdin, body)
	var job struct {
		File string
		Args []string
		Env  map[string]string
	}
	if err := json.Unmarshal(body, &job); err != nil {
		return fake.Exit{Code: 9}
	}
	rest, _ := io.ReadAll(p.Stdin)
	fmt.Fprintf(p.Stdout, "warm %s %v %s %s", job.File, job.Args, job.Env["K"], rest)
	return fake.Exit{Code: 5}
}

func python(spec sandbox.Spec) runs.Request {
	spec.Language, spec.Code = "python", "print(1)"
	return runs.Request{Spec: spec, Tenant: "alice"}
}

func TestWarmInterpreter(t *testing.T) {
	s := serve(t, engine.Options{Pools: []sandbox.PoolSpec{{Name: "py", Language: "python", Min: 1}}}, func(driver.Plan) fake.Script {
		return fake.Script{Program: waits}
	})
	full := func() bool { p := s.Pools()[0]; return p.Available == 1 && p.Filling == 0 }
	for _, test := range []struct {
		name string
		spec sandbox.Spec
		warm bool
	}{
		{"plain", sandbox.Spec{Args: []string{"a", "b"}, Env: map[string]string{"K": "v"}, Stdin: "in"}, true},
		{"cold on request", sandbox.Spec{Cold: true}, false},
		{"an environment that counts from the start", sandbox.Spec{Env: map[string]string{"PYTHONHASHSEED": "1"}}, false},
		{"other limits of each process", sandbox.Spec{Limits: sandbox.Limits{OpenFiles: 64}}, false},
		{"another shape", sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 64 << 20}}, false},
		{"limits that the engine keeps", sandbox.Spec{Limits: sandbox.Limits{WallTimeMS: 5000, OutputBytes: 100}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			eventually(t, "one waits", full)
			r, err := s.Run(soon(t), python(test.spec))
			if err != nil || r.Warm != test.warm {
				t.Fatalf("%+v, %v", r, err)
			}
			want := "cold"
			if test.warm {
				want = fmt.Sprintf("warm main.py %v %s %s", test.spec.Args, test.spec.Env["K"], test.spec.Stdin)
			}
			if r.Stdout != want {
				t.Fatalf("stdout %q, want %q", r.Stdout, want)
			}
			if test.warm && (*r.ExitCode != 5 || r.Status != sandbox.StatusFailed) {
				t.Fatalf("%+v", r)
			}
		})
	}
	// A sandbox that somebody creates gets no interpreter.
	eventually(t, "one waits", full)
	if x := s.create(t, sandbox.Create{}); x.Info().Warm {
		t.Fatal("a living sandbox got an interpreter of a pool")
	}
}

func TestWaitingInterpreterThatDiesIsReplaced(t *testing.T) {
	s := serve(t, engine.Options{Pools: []sandbox.PoolSpec{{Name: "py", Language: "python", Min: 1}}}, func(driver.Plan) fake.Script {
		return fake.Script{Program: waits}
	})
	eventually(t, "one waits", func() bool { return s.Pools()[0].Available == 1 })
	s.driver.Machines()[0].Die(driver.Death{Kind: driver.DeathAgent, Evidence: "scripted"})
	r, err := s.Run(soon(t), python(sandbox.Spec{}))
	if err != nil || r.Warm || r.Stdout != "cold" {
		t.Fatalf("%+v, %v", r, err)
	}
	eventually(t, "it is replaced", func() bool { p := s.Pools()[0]; return p.Available == 1 && p.Replaced == 1 })
}

func TestModulesThatAreAskedFor(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{Program: waits} })
	spec := sandbox.Spec{Warm: []string{"pandas", "numpy"}}
	r, err := s.Run(soon(t), python(spec))
	if err != nil || !r.Warm { // it waits for what it would have to load itself
		t.Fatalf("the first: %+v, %v", r, err)
	}
	eventually(t, "some are kept", func() bool { return len(s.Pools()) == 1 && s.Pools()[0].Available > 0 })
	spec.Warm = []string{"numpy", "pandas", "numpy"} // the order does not count
	r, err = s.Run(soon(t), python(spec))
	if err != nil || !r.Warm || strings.Contains(r.Stdout, "loading") {
		t.Fatalf("the second: %+v, %v", r, err)
	}
	for _, bad := range []string{"os;import x", "", "a..b", "a b", "1a", "ä"} {
		if _, err := s.Run(soon(t), python(sandbox.Spec{Warm: []string{bad}})); code(err) != sandbox.CodeSpecInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := s.Run(soon(t), python(sandbox.Spec{Warm: []string{"a"}, Cold: true})); code(err) != sandbox.CodeSpecInvalid {
		t.Errorf("warm and cold: %v", err)
	}
}

func TestModuleThatIsNotThere(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{Program: waits} })
	if _, err := s.SetPool(soon(t), sandbox.PoolSpec{Name: "p", Language: "python", Warm: []string{"nothere"}, Min: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reason shows", func() bool {
		e := s.Pools()[0].Error
		return e != nil && strings.Contains(e.Message, "No module named 'nothere'")
	})
	eventually(t, "nothing of it is left", func() bool { return s.driver.Living() <= 1 })
	for _, bad := range []sandbox.PoolSpec{{Name: "p", Warm: []string{"x"}}, {Name: "p", Language: "c"}, {Name: "p", Language: "klingon"}} {
		if _, err := s.SetPool(soon(t), bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if err := s.RemovePool(soon(t), "p"); err != nil {
		t.Fatal(err)
	}
}

// However many different modules are asked for at once, few pools are made.
func TestPoolsThatAreAskedForAreFew(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{Program: waits} })
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if _, err := s.Run(soon(t), python(sandbox.Spec{Warm: []string{fmt.Sprintf("m%d", i)}})); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	eventually(t, "some are kept", func() bool { return len(s.Pools()) == 8 })
	if _, err := s.Run(soon(t), python(sandbox.Spec{Warm: []string{"another"}})); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Pools()); n != 8 {
		t.Fatalf("%d pools", n)
	}
}

// Who asks for the same modules with other limits has a pool of their own, and
// who asks for a pool that was taken away waits for nothing.
func TestPoolsThatAreAskedForHaveOneShape(t *testing.T) {
	s := serve(t, engine.Options{}, func(driver.Plan) fake.Script { return fake.Script{Program: waits} })
	few, many := sandbox.Spec{Warm: []string{"m"}, Limits: sandbox.Limits{Processes: 63}}, sandbox.Spec{Warm: []string{"m"}}
	for _, spec := range []sandbox.Spec{few, many} {
		if r, err := s.Run(soon(t), python(spec)); err != nil || !r.Warm {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	pools := s.Pools()
	if len(pools) != 2 {
		t.Fatalf("%d pools", len(pools))
	}
	for _, p := range pools {
		if err := s.RemovePool(soon(t), p.Name); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := s.Run(soon(t), python(many)); err != nil || r.Warm {
		t.Fatalf("after the pool was removed: %+v, %v", r, err)
	}
}
