package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

func TestGateFlags(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	parse := func(args ...string) (*sandbox.Gate, error) {
		f, spec := &runFlags{}, sandbox.Spec{Code: "1"}
		set := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.bind(set)
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if err := (&app{}).addGate(f, &spec); err != nil {
			return nil, err
		}
		return spec.Gate, spec.Validate()
	}
	if g, err := parse(); g != nil || err != nil {
		t.Errorf("%+v %v", g, err)
	}
	g, err := parse("--gate", "keys=redact", "--gate", "secrets=withhold", "--context", "8KiB", "--output-schema", file("schema.json", `{"type": "object"}`))
	if err != nil || g.Keys != sandbox.GateRedact || g.Secrets != sandbox.GateWithhold || g.ContextBytes != 8192 || len(g.Schemas) != 1 || g.Schemas[0].Of != sandbox.GateStdout {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := parse("--gate", "all=redact"); err != nil || g.HiddenText != sandbox.GateRedact || g.Scripts != sandbox.GateWithhold {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := parse("--gate", "keys=flag", "--gate", file("gate.json", `{"keys": "withhold", "formulas": "flag"}`)); err != nil || g.Keys != sandbox.GateWithhold || g.Formulas != sandbox.GateFlag {
		t.Errorf("%+v %v", g, err)
	}
	g, err = parse("--gate-validator", file("judge.py", "1"), "--gate-validator", file("other", "#!/bin/sh\nexit 1"))
	if err != nil || len(g.Validators) != 2 || g.Validators[0] != (sandbox.GateValidator{Language: "python", Code: "1"}) || g.Validators[1].Language != "sh" {
		t.Errorf("%+v %v", g, err)
	}
	for flag, args := range map[string][]string{
		"cannot tell": {"--gate-validator", file("judge", "1")}, "--gate-validator": {"--gate-validator", "nothing.py"}, "no check": {"--gate", "kez=flag"}, "gate.keys": {"--gate", "keys=drop"}, "gate.scripts": {"--gate", "scripts=redact"}, "no action": {"--gate", "keys="},
		"does not exist": {"--gate", "nothing.json"}, "no such field": {"--gate", file("wrong.json", `{"kez": "flag"}`)}, "outside": {"--context", "1B"}, "--output-schema": {"--output-schema", "nothing.json"},
	} {
		if _, err := parse(args...); err == nil || !strings.Contains(err.Error(), flag) && !strings.Contains(sandbox.AsError(err).Message, flag) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// Who asked for a gate that withheld something does not get the status of success.
func TestStatusOfWithheldOutput(t *testing.T) {
	zero, one := 0, 1
	for _, test := range []struct {
		code    *int
		outcome sandbox.GateAction
		want    int
	}{{&zero, sandbox.GateWithhold, exitPinfold}, {&zero, sandbox.GateRedact, 0}, {&zero, sandbox.GatePass, 0}, {&one, sandbox.GateWithhold, 1}} {
		r := &sandbox.Result{Status: sandbox.StatusSucceeded, ExitCode: test.code, Gate: &sandbox.GateResult{Outcome: test.outcome}}
		if got := exitStatus(r); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

func TestWhatTheGateSays(t *testing.T) {
	text := outcomeText(sandbox.GateOutcome{Check: "keys", Outcome: sandbox.GateRedact, Count: 2, Findings: []sandbox.GateFinding{{Part: "stdout", What: "jwt", Line: 3}, {Part: "artifact", Path: "a\x1b.txt", What: "jwt"}}})
	if !strings.HasPrefix(text, "took out (2): jwt in stdout line 3; jwt in artifact a") || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}

// A schema in a request is any JSON, and kept as it was written.
func TestSchemaInARequest(t *testing.T) {
	for _, schema := range []string{"true", `{"type": "object", "enum": [1.50]}`, `{}`} {
		var s sandbox.Spec
		err := strictjson.Decode([]byte(`{"code": "1", "gate": {"schemas": [{"of": "stdout", "schema": `+schema+`}], "artifacts": {"media_types": []}}}`), &s)
		if err != nil || string(s.Gate.Schemas[0].Schema) != schema || s.Gate.Artifacts.MediaTypes == nil {
			t.Errorf("%s: %v %+v", schema, err, s.Gate)
		}
	}
}
