package api

import (
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/execution"
	"pinfold/internal/gate"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// A run is repeated by its own tenant with a key that may run, and by nobody else; what it
// differs in is told in text that no terminal obeys.
func TestReplayIsEachTenantsOwn(t *testing.T) {
	var moved atomic.Bool
	w := newWorld(t, func(s *settings) {
		withAudit(t, s)
		s.script = func(driver.Plan) fake.Script {
			return fake.Script{Program: func(p *fake.Process) fake.Exit {
				if moved.Load() {
					_, _ = io.WriteString(p.Stdout, "\x1b]0;title\x07\u202e\n")
				}
				return fake.Exit{}
			}}
		}
	})
	var r, again sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}}).json(t, &r)
	path := "/v1/runs/" + r.ID + "/replay"
	w.must(404, request{key: "beta", method: "POST", path: path})
	w.must(403, request{key: "read", method: "POST", path: path})
	w.must(404, request{key: "alpha", method: "POST", path: "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaaaa/replay"})
	moved.Store(true)
	w.must(200, request{key: "run", method: "POST", path: path}).json(t, &again)
	if p := again.Replay; p == nil || p.Same || p.Of != r.ID || len(p.Differences) != 1 || p.Differences[0].What != "stdout" || strings.ContainsAny(p.Differences[0].Diff, "\x1b\x07\u202e") {
		t.Errorf("%+v", again.Replay)
	}
	all := w.auditList("alpha", "&kind=run")
	if len(all) != 2 || all[1].Origin != r.ID {
		t.Errorf("%+v", all)
	}
}

// Where a server keeps no texts, a run is not repeated, and the answer says what would.
func TestReplayWithoutTexts(t *testing.T) {
	w := newWorld(t, nil)
	var r sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}}).json(t, &r)
	if a := w.must(409, request{key: "alpha", method: "POST", path: "/v1/runs/" + r.ID + "/replay"}); !strings.Contains(a.body, "audit.texts: true") {
		t.Errorf("%s", a.body)
	}
}

// What the gate, or a validator, withholds is in no answer of the server's: not in the
// result, the record, the events, the list, the log, a replay.
func TestWithheldOutputIsInNoAnswer(t *testing.T) {
	const leaked = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	for name, g := range map[string]*sandbox.Gate{
		"control": {Keys: sandbox.GateFlag}, "keys": {Keys: sandbox.GateWithhold}, "validator": {Validators: []sandbox.GateValidator{{Language: "sh", Code: "judge"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(s *settings) {
				withAudit(t, s)
				s.engine.Gates = func(g sandbox.Gate, secrets []secret.Secret) (execution.Gate, error) { return gate.New(g, secrets) }
				s.script = func(driver.Plan) fake.Script {
					return fake.Script{Program: func(p *fake.Process) fake.Exit {
						if _, judges := p.Machine.Files.Get("/home/user/output.json"); judges {
							return fake.Exit{Code: 1}
						}
						p.Machine.Files.Put("/home/user/"+leaked+".txt", leaked)
						_, _ = io.WriteString(p.Stdout, leaked+"\n")
						_, _ = io.WriteString(p.Stderr, "sh: 1: "+leaked+": not found\n")
						return fake.Exit{Code: 127}
					}}
				}
			})
			spec := sandbox.Spec{Language: "sh", Code: "x", Gate: g, OutputBase64: true, Artifacts: []string{"*.txt"}}
			a := w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: spec})
			var r sandbox.Result
			if err := json.Unmarshal([]byte(a.body), &r); err != nil {
				t.Fatal(err)
			}
			said := a.body
			for _, path := range []string{"", "/events", "/wait"} {
				said += w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs/" + r.ID + path}).body
			}
			said += w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + r.ID + "/replay"}).body
			said += w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs"}).body + w.must(200, request{key: "alpha", method: "GET", path: "/v1/audit"}).body
			const encoded = "Z2hwX2FiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6MDEyMzQ1Njc4O" // of the same, in base64
			if found := strings.Contains(said, leaked) || strings.Contains(said, encoded); found != (name == "control") {
				t.Errorf("%s", said)
			}
		})
	}
}
