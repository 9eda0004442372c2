package engine_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/runs"
	"pinfold/internal/gate"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

const leaked = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"

// gates makes real ones.
func gates(g sandbox.Gate, secrets []secret.Secret) (execution.Gate, error) {
	made, err := gate.New(g, secrets)
	if err != nil {
		return nil, err
	}
	return made, nil
}

// leaking serves an engine whose programs print a key between two lines on each stream.
func leaking(t *testing.T, o engine.Options) *served {
	o.Gates = gates
	return serve(t, o, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.WriteString(p.Stdout, "before "+leaked+" after\n")
			_, _ = io.WriteString(p.Stderr, "error "+leaked+"\n")
			return fake.Exit{}
		}}
	})
}

func gated(g *sandbox.Gate) runs.Request {
	return runs.Request{Tenant: "alice", Spec: sandbox.Spec{Language: "sh", Code: "scripted", Gate: g}}
}

// What the gate takes out or keeps back is nowhere: not in the result, its exact bytes, the
// streams, what those see who follow the run, the record, or the audit log.
func TestGateEverywhere(t *testing.T) {
	for action, want := range map[sandbox.GateAction]string{
		sandbox.GateFlag: "before " + leaked + " after\n", sandbox.GateRedact: "before [github_token] after\n", sandbox.GateWithhold: "",
	} {
		t.Run(string(action), func(t *testing.T) {
			a := newAudited(t, true)
			s := leaking(t, engine.Options{Auditor: a})
			req := gated(&sandbox.Gate{Keys: action})
			req.Spec.OutputBase64 = true
			var stdout, stderr bytes.Buffer
			req.Streams = execution.Streams{Stdout: &stdout, Stderr: &stderr}
			r, err := s.Run(soon(t), req)
			if err != nil {
				t.Fatal(err)
			}
			record, err := s.RunRecord(soon(t), "alice", r.ID)
			if err != nil {
				t.Fatal(err)
			}
			var followed strings.Builder
			w, err := s.WatchRun(soon(t), "alice", r.ID, [2]int64{})
			for err == nil {
				var u runs.Update
				if u, err = w.Next(soon(t)); u.Stream == 1 {
					followed.Write(u.Chunk)
				}
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			event := a.last()[0]
			for what, got := range map[string]string{
				"result": r.Stdout, "bytes": string(r.StdoutRaw), "stream": stdout.String(), "record": record.Result.Stdout, "followed": followed.String(), "audit": string(event.Parts["stdout"]),
			} {
				if got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			if shown := r.Stderr + stderr.String() + string(r.StderrRaw); strings.Contains(shown, leaked) != (action == sandbox.GateFlag) {
				t.Errorf("stderr: %q", shown)
			}
			if r.Gate == nil || r.Gate.Outcome != action || record.Result.Gate.Outcome != action || event.Entry.Gate != action || r.Gate.Checks[0].Count != 2 || r.Status != sandbox.StatusSucceeded {
				t.Errorf("%+v, %q in the audit log", r.Gate, event.Entry.Gate)
			}
		})
	}
}

// Output that may be changed is held back until the end; what is only looked at is not.
func TestGateHolds(t *testing.T) {
	for action, held := range map[sandbox.GateAction]bool{sandbox.GateFlag: false, sandbox.GateRedact: true} {
		release := make(chan struct{})
		s := serve(t, engine.Options{Gates: gates}, func(driver.Plan) fake.Script {
			return fake.Script{Program: func(p *fake.Process) fake.Exit {
				_, _ = io.WriteString(p.Stdout, "early\n")
				<-release
				return fake.Exit{}
			}}
		})
		started, err := s.Start(soon(t), gated(&sandbox.Gate{Keys: action}))
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.WatchRun(soon(t), "alice", started.ID, [2]int64{})
		if err != nil {
			t.Fatal(err)
		}
		early := make(chan bool, 1)
		go func() {
			for {
				u, err := w.Next(t.Context())
				if err != nil || u.Result != nil {
					early <- false
					return
				}
				if u.Stream == 1 {
					select {
					case <-release:
						early <- false
					default:
						early <- true
					}
					return
				}
			}
		}()
		if !held { // it must come while the program runs
			if !<-early {
				t.Error("what is only looked at came late")
			}
			close(release)
		} else {
			close(release)
			if <-early {
				t.Error("what may be changed came early")
			}
		}
		if r, err := s.AwaitRun(soon(t), "alice", started.ID); err != nil || r.Result.Stdout != "early\n" {
			t.Errorf("%v", err)
		}
	}
}

// Artifacts are checked before they go anywhere, in line and to a sink.
func TestGateOfArtifacts(t *testing.T) {
	s := leaking(t, engine.Options{})
	for _, sink := range []bool{false, true} {
		req := gated(&sandbox.Gate{Keys: sandbox.GateRedact, Scripts: sandbox.GateWithhold, ContextBytes: 1000})
		req.Spec.Files = []sandbox.File{{Path: "a.txt", Content: "x " + leaked}, {Path: "b.svg", Content: "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>1</script></svg>"}, {Path: "c.txt", Content: "fine"}}
		req.Spec.Artifacts = []string{"a.txt", "b.svg", "c.txt"}
		took := map[string]string{}
		if sink {
			req.Artifact = func(a sandbox.Artifact, content io.Reader) error {
				b, err := io.ReadAll(content)
				took[a.Path] = string(b)
				return err
			}
		}
		r, err := s.Run(soon(t), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range r.Artifacts {
			if !sink {
				took[a.Path] = string(a.Content)
			}
			if int(a.Size) != len(took[a.Path]) {
				t.Errorf("%+v", a)
			}
		}
		if len(took) != 2 || took["a.txt"] != "x [github_token]" || took["c.txt"] != "fine" {
			t.Errorf("%v", took)
		}
		if len(r.ArtifactsSkipped) != 1 || r.ArtifactsSkipped[0].Path != "b.svg" || r.ArtifactsSkipped[0].Code != sandbox.CodeWithheld {
			t.Errorf("%+v", r.ArtifactsSkipped)
		}
		if r.Gate.Outcome != sandbox.GateWithhold || r.Gate.Context == nil || r.Gate.Context.Stdout.Text != r.Stdout {
			t.Errorf("%+v", r.Gate)
		}
	}
}

// What the operator asks for holds for every run; a request can add to it and take nothing
// away. The server's own questions are not its business.
func TestGateOfTheOperator(t *testing.T) {
	operator := &sandbox.Gate{Keys: sandbox.GateWithhold, Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(`{"type": "object"}`)}}}
	s := leaking(t, engine.Options{Policy: admission.Policy{Gate: operator}})
	for _, g := range []*sandbox.Gate{nil, {}, {Keys: sandbox.GateFlag}, {HiddenText: sandbox.GateRedact}} {
		r, err := s.Run(soon(t), gated(g))
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, c := range r.Gate.Checks {
			names = append(names, c.Check)
		}
		if r.Stdout != "" || r.Stderr != "" || !slices.Contains(names, "keys") || !slices.Contains(names, "schemas[0]") || g != nil && g.HiddenText != "" && !slices.Contains(names, "hidden_text") {
			t.Errorf("%+v: %q, %v", g, r.Stdout, names)
		}
	}
	own := gated(nil)
	own.Own = true
	if r, err := s.Run(soon(t), own); err != nil || r.Gate != nil || r.Stdout == "" {
		t.Errorf("%v", err)
	}
	if r, err := leaking(t, engine.Options{}).Run(soon(t), gated(nil)); err != nil || r.Gate != nil || !strings.Contains(r.Stdout, leaked) { // the control
		t.Errorf("without a gate: %v", err)
	}
}

// The secrets that a run's endpoints name are looked for, and no others.
func TestGateKnowsTheRunsSecrets(t *testing.T) {
	const value, other = "swordfish-12345", "marlin-67890"
	fixed, err := secret.NewFixed(map[string]sandbox.SetSecret{"door": {Hosts: []string{"a.test"}, Value: value}, "other": {Hosts: []string{"a.test"}, Value: other}})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, engine.Options{Gates: gates, Secrets: fixed, Policy: admission.Policy{Network: admission.Network{Own: true}}}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.WriteString(p.Stdout, value+" "+other)
			return fake.Exit{}
		}}
	})
	for _, test := range []struct{ named, want string }{{"door", "[secret door] " + other}, {"", value + " " + other}} {
		req := gated(&sandbox.Gate{Secrets: sandbox.GateRedact})
		req.Spec.Network = sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Secret: test.named}}}
		if r, err := s.Run(soon(t), req); err != nil || r.Stdout != test.want {
			t.Errorf("%q: %+v, %v", test.named, r, err)
		}
	}
}

// A gate that is wrong is refused before anything is made.
func TestGateRefused(t *testing.T) {
	s := leaking(t, engine.Options{})
	for field, g := range map[string]*sandbox.Gate{
		"gate.keys": {Keys: "remove"}, "gate.scripts": {Scripts: sandbox.GateRedact}, "gate.context_bytes": {ContextBytes: 1},
		"gate.schemas[0].schema": {Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(`{"$ref": "file:///etc/passwd"}`)}}},
	} {
		_, err := s.Run(soon(t), gated(g))
		if e := sandbox.AsError(err); e == nil || e.Field != field || e.Hint == "" || e.Code != sandbox.CodeSpecInvalid {
			t.Errorf("%s: %+v", field, e)
		}
	}
	none := serve(t, engine.Options{}, nil)
	if _, err := none.Run(soon(t), gated(&sandbox.Gate{Keys: sandbox.GateFlag})); code(err) != sandbox.CodeSpecInvalid {
		t.Errorf("an engine without gates: %v", err)
	}
}
