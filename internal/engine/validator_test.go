package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/sandbox"
)

// judging serves an engine whose shell programs print, and whose validators, which are
// Python's, do what f does.
func judging(t *testing.T, o engine.Options, f func(p *fake.Process) fake.Exit) *served {
	o.Gates = gates
	return serve(t, o, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			if strings.Contains(p.Args[0], "python") {
				return f(p)
			}
			p.Machine.Files.Put("/home/user/made.txt", "made "+leaked)
			_, _ = io.WriteString(p.Stdout, "printed "+leaked+"\n")
			_, _ = io.WriteString(p.Stderr, "said\n")
			return fake.Exit{}
		}}
	})
}

func judged(action sandbox.GateAction) *sandbox.Gate {
	return &sandbox.Gate{Keys: sandbox.GateRedact, Validators: []sandbox.GateValidator{{Language: "python", Code: "judge", Action: action}}}
}

// reads is a validator that ends so, with a reason.
func answers(code int, reason string) func(*fake.Process) fake.Exit {
	return func(p *fake.Process) fake.Exit {
		_, _ = io.WriteString(p.Stderr, reason)
		return fake.Exit{Code: code}
	}
}

// A validator has the output as the other checks have left it, in a sandbox of its own with
// its own limits and no network, and what it lets pass comes out.
func TestValidatorJudges(t *testing.T) {
	var asked atomic.Int32
	s := judging(t, engine.Options{DestroyLater: true, Capacity: admission.Capacity{Sandboxes: 1}}, func(p *fake.Process) fake.Exit {
		asked.Add(1)
		stdout, _ := io.ReadAll(p.Stdin)
		description, _ := p.Machine.Files.Get("/home/user/output.json")
		made, _ := p.Machine.Files.Get("/home/user/artifacts/made.txt")
		var d struct {
			ID, Status, Stderr string
			Artifacts          []sandbox.Artifact
		}
		err := json.Unmarshal([]byte(description), &d)
		plan := p.Machine.Plan
		if string(stdout) != "printed [github_token]\n" || made != "made [github_token]" || err != nil || d.Status != "succeeded" || d.Stderr != "said\n" || len(d.Artifacts) != 1 ||
			plan.Limits.MemoryBytes != sandbox.ValidatorLimits().MemoryBytes || !plan.Network.None() {
			_, _ = fmt.Fprintf(p.Stderr, "%q %q %q %v %+v", stdout, description, made, err, plan.Limits)
			return fake.Exit{Code: 1}
		}
		return fake.Exit{}
	})
	for _, sink := range []bool{false, true} {
		req := gated(judged(""))
		req.Spec.Artifacts = []string{"*.txt"}
		took := ""
		if sink {
			req.Artifact = func(_ sandbox.Artifact, content io.Reader) error {
				b, err := io.ReadAll(content)
				took = string(b)
				return err
			}
		}
		r, err := s.Run(soon(t), req)
		if err != nil {
			t.Fatal(err)
		}
		if !sink && len(r.Artifacts) == 1 {
			took = string(r.Artifacts[0].Content)
		}
		if last := r.Gate.Checks[len(r.Gate.Checks)-1]; last.Check != "validators[0]" || last.Outcome != sandbox.GatePass || r.Stdout != "printed [github_token]\n" || took != "made [github_token]" || len(r.Artifacts) != 1 {
			t.Errorf("%+v\n%+v, %q", r.Gate, r, took)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// What a validator withholds is nowhere, and neither is what one that gave no verdict has
// judged; what it flags comes out. Nobody has any of it before.
func TestValidatorWithholds(t *testing.T) {
	tests := map[string]struct {
		action  sandbox.GateAction
		does    func(*fake.Process) fake.Exit
		outcome sandbox.GateAction
		said    string
	}{
		"withholds":          {"", answers(3, "no\x1b[2J total\nmore"), sandbox.GateWithhold, `exit status 3: no\x1b[2J total`},
		"flags":              {sandbox.GateFlag, answers(1, "odd"), sandbox.GateFlag, "exit status 1: odd"},
		"says nothing":       {"", answers(1, ""), sandbox.GateWithhold, "exit status 1"},
		"quotes a key":       {sandbox.GateFlag, answers(1, "found "+leaked), sandbox.GateFlag, "exit status 1: found [github_token]"},
		"talks much":         {"", answers(1, strings.Repeat("x", 5000)), sandbox.GateWithhold, "exit status 1: " + strings.Repeat("x", sandbox.MaxGateReason) + "…"},
		"ends by a signal":   {sandbox.GateFlag, exitsBy(11), sandbox.GateWithhold, "the validator gave no verdict: signaled"},
		"does not end":       {sandbox.GateFlag, sleepsLong, sandbox.GateWithhold, "the validator gave no verdict: wall_time"},
		"prints without end": {sandbox.GateFlag, printsMuch, sandbox.GateFlag, "exit status 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, true)
			s := judging(t, engine.Options{Auditor: a}, test.does)
			req := gated(judged(test.action))
			req.Spec.Gate.Keys = sandbox.GateFlag
			req.Spec.Gate.ContextBytes = 1000
			if name == "quotes a key" {
				req.Spec.Gate.Keys = sandbox.GateRedact
			}
			if name == "does not end" {
				req.Spec.Gate.Validators[0].Limits.WallTimeMS = 300
			}
			req.Spec.OutputBase64, req.Spec.Artifacts = true, []string{"*.txt"}
			var stdout, stderr, files bytes.Buffer
			req.Streams = execution.Streams{Stdout: &stdout, Stderr: &stderr}
			req.Artifact = func(_ sandbox.Artifact, content io.Reader) error { _, err := io.Copy(&files, content); return err }
			r, err := s.Run(soon(t), req)
			if err != nil {
				t.Fatal(err)
			}
			record, err := s.RunRecord(soon(t), "alice", r.ID)
			if err != nil {
				t.Fatal(err)
			}
			event := a.last()[0]
			whole, _ := json.Marshal([]any{r, record.Result, event})
			all := string(whole) + stdout.String() + stderr.String() + files.String()
			if withheld := test.outcome == sandbox.GateWithhold; withheld == strings.Contains(all, "printed ") || withheld == strings.Contains(all, "made.txt") || withheld == (files.Len() > 0) || withheld && strings.Contains(all, leaked) {
				t.Errorf("%s", all)
			}
			last := r.Gate.Checks[len(r.Gate.Checks)-1]
			if last.Outcome != test.outcome || event.Entry.Gate != r.Gate.Outcome || len(last.Findings) != 1 || last.Findings[0].What != test.said {
				t.Errorf("%+v", last)
			}
		})
	}
}

func exitsBy(signal int) func(*fake.Process) fake.Exit {
	return func(*fake.Process) fake.Exit { return fake.Exit{Signal: signal} }
}

func sleepsLong(p *fake.Process) fake.Exit {
	p.Sleep(time.Hour)
	return fake.Exit{}
}

func printsMuch(p *fake.Process) fake.Exit {
	for range 1000 {
		if _, err := p.Stdout.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
			break
		}
	}
	return fake.Exit{Code: 1}
}

// Nobody has the output while a validator judges it, also one that only flags.
func TestValidatorHolds(t *testing.T) {
	judges, proceed := make(chan struct{}), make(chan struct{})
	s := judging(t, engine.Options{}, func(*fake.Process) fake.Exit {
		close(judges)
		<-proceed
		return fake.Exit{}
	})
	started, err := s.Start(soon(t), gated(judged(sandbox.GateFlag)))
	if err != nil {
		t.Fatal(err)
	}
	<-judges
	r, err := s.RunRecord(soon(t), "alice", started.ID)
	if err != nil || r.Result != nil || r.State != sandbox.RunRunning {
		t.Errorf("%+v, %v", r, err)
	}
	w, err := s.WatchRun(soon(t), "alice", started.ID, [2]int64{})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { close(proceed) })
	began, early := time.Now(), false
	for {
		u, err := w.Next(soon(t))
		if err != nil {
			break
		}
		early = early || len(u.Chunk) > 0 && time.Since(began) < 150*time.Millisecond
	}
	if early {
		t.Error("output came before it was judged")
	}
}

// A run that is cancelled while its output is judged gives nothing.
func TestValidatorIsCancelled(t *testing.T) {
	judges := make(chan struct{})
	s := judging(t, engine.Options{}, func(p *fake.Process) fake.Exit {
		close(judges)
		return sleepsLong(p)
	})
	started, err := s.Start(soon(t), gated(judged("")))
	if err != nil {
		t.Fatal(err)
	}
	<-judges
	r, err := s.CancelRun(soon(t), "alice", started.ID)
	if err != nil || r.Result == nil || r.Result.Stdout != "" || r.Result.Gate.Outcome != sandbox.GateWithhold {
		t.Errorf("%+v, %v", r.Result, err)
	}
}

// The operator's validator judges every run, beside the request's.
func TestValidatorOfTheOperator(t *testing.T) {
	s := judging(t, engine.Options{Policy: admission.Policy{Gate: judged("")}}, answers(1, "no"))
	r, err := s.Run(soon(t), gated(judged(sandbox.GateFlag)))
	if err != nil || r.Stdout != "" || len(r.Gate.Checks) != 3 || r.Gate.Checks[1].Outcome != sandbox.GateFlag || r.Gate.Checks[2].Outcome != sandbox.GateWithhold {
		t.Errorf("%+v, %v", r, err)
	}
}

// A validator that could not run is refused before anything is made.
func TestValidatorRefused(t *testing.T) {
	s := judging(t, engine.Options{Policy: admission.Policy{Max: sandbox.Limits{Processes: 100}}}, answers(0, ""))
	for field, v := range map[string]sandbox.GateValidator{
		"gate.validators[0].language":            {Language: "none", Code: "x"},
		"gate.validators[0].code":                {Language: "python"},
		"gate.validators[0].action":              {Language: "python", Code: "x", Action: sandbox.GateRedact},
		"gate.validators[0].limits.wall_time_ms": {Language: "python", Code: "x", Limits: sandbox.Limits{WallTimeMS: 61_000}},
		"gate.validators[0].limits.processes":    {Language: "python", Code: "x", Limits: sandbox.Limits{Processes: 101}},
	} {
		r, err := s.Run(soon(t), gated(&sandbox.Gate{Validators: []sandbox.GateValidator{v}}))
		if e := sandbox.AsError(err); r != nil || e == nil || e.Field != field {
			t.Errorf("%s: %+v, %+v", field, r, e)
		}
	}
}

// The hint of a run is of what it said last: it does not come out where that does not.
func TestHintDoesNotTellWhatWasWithheld(t *testing.T) {
	for _, action := range []sandbox.GateAction{sandbox.GateFlag, sandbox.GateWithhold} {
		s := serve(t, engine.Options{Gates: gates}, func(driver.Plan) fake.Script {
			return fake.Script{Program: func(p *fake.Process) fake.Exit {
				_, _ = io.WriteString(p.Stderr, "ModuleNotFoundError: No module named '"+leaked+"'\n")
				return fake.Exit{Code: 1}
			}}
		})
		req := gated(&sandbox.Gate{Keys: action})
		req.Spec.Language, req.Spec.Code = "python", "scripted"
		r, err := s.Run(soon(t), req)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := json.Marshal(r)
		if strings.Contains(string(said), leaked) != (action == sandbox.GateFlag) || strings.Contains(r.Cause.Hint, leaked) != (action == sandbox.GateFlag) {
			t.Errorf("%s: %s", action, said)
		}
	}
}

// Where the operator's rules decide, no program runs that they have not looked at: a request
// brings no validators. The operator's own judge as ever.
func TestRulesRefuseValidatorsOfRequests(t *testing.T) {
	var asked atomic.Int32
	judge := func(*fake.Process) fake.Exit { asked.Add(1); return fake.Exit{} }
	for _, held := range []bool{false, true} {
		asked.Store(0)
		o := engine.Options{}
		if held {
			o.Rules = rules(t, sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "no-python", When: sandbox.PolicyWhen{Languages: []string{"python"}}, Then: sandbox.PolicyThen{Refuse: "no"}}}})
		}
		_, err := judging(t, o, judge).Run(soon(t), gated(judged("")))
		if refused := code(err) == sandbox.CodePolicyRefused && sandbox.AsError(err).Field == "gate.validators"; refused != held || asked.Load() > 0 == held {
			t.Errorf("held %v: %v, %d judged", held, err, asked.Load())
		}
		if !held {
			continue
		}
		o.Policy.Gate = judged("")
		if r, err := judging(t, o, judge).Run(soon(t), gated(nil)); err != nil || asked.Load() != 1 {
			t.Errorf("the operator's: %+v %v, %d judged", r, err, asked.Load())
		}
	}
}
