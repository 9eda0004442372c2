//go:build linux

package attacks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/engine"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/runs"
	"pinfold/internal/gate"
	"pinfold/internal/policy"
	"pinfold/internal/scan"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// ruleCases are attacks on what looks at programs and at their output. The wall is the
// sandbox; these hold what they say that they hold.
func ruleCases() []Case {
	return []Case{
		{
			ID: "PL-01", Title: "hiding from an operator's rule what it refuses: texts inside texts, odd encodings, variables, another file, a driver that is named", Level: Spec, Severity: Integrity, Source: "own",
			Expect: "each is refused by the rule, and none has run; an honest program runs", Do: func(t *trial) error { return t.hides(true) },
			Control: Control{Without: "the rule", Run: func(a *arena) error { return a.hides(false) }},
		},
		{
			ID: "GA-01", Title: "carrying a key past the output gate: in colours, with characters that nobody sees, in pieces, in a file, in a file's name, on stderr", Level: User, Severity: Exfil, Source: "own",
			Expect: "the key stands nowhere in the result and in no file; the rest comes out", Do: func(t *trial) error { return t.carries(true) },
			Control: Control{Without: "the gate", Run: func(a *arena) error { return a.carries(false) }},
		},
	}
}

// hidden are requests that the rule of PL-01 is about. Each prints 42 where it runs.
func hidden() map[string]sandbox.Spec {
	const bad = "rm -rf /"
	bash := func(code string) sandbox.Spec { return sandbox.Spec{Language: "bash", Code: code + "\necho $((6*7))"} }
	python := func(code string) sandbox.Spec { return sandbox.Spec{Language: "python", Code: code + "\nprint(6*7)"} }
	deep, inner := bad, "import os; os.system('"+bad+"')"
	for range 6 {
		deep = "sh -c '" + strings.ReplaceAll(deep, "'", `'\''`) + "'"
	}
	for range 4 {
		inner = "exec(" + strconv.Quote(inner) + ")"
	}
	named := bash(bad)
	named.Driver = "native"
	variable := bash(":")
	variable.Env = map[string]string{"BASH_ENV": "$(" + bad + ")"}
	return map[string]sandbox.Spec{
		"plain":                   bash(bad),
		"text in texts":           bash(deep),
		"eval of eval":            bash("eval eval eval eval eval eval '" + bad + "'"),
		"decoded":                 bash("echo " + base64.StdEncoding.EncodeToString([]byte(bad)) + " | base64 -d | sh"),
		"another file":            {Language: "bash", Entrypoint: "a.sh", Files: []sandbox.File{{Path: "a.sh", Content: bad + "\necho $((6*7))"}}},
		"a variable":              variable,
		"a driver that is named":  named,
		"source in a text":        python(inner),
		"a name in pieces":        python("getattr(__import__('o' + 's'), 'sys' + 'tem')('" + bad + "')"),
		"an encoding of its own":  python("# coding: utf-7\nimport os; os.+AHMAeQBzAHQAZQBt-('" + bad + "')"),
		"more than anybody reads": python(strings.Repeat("x = 1\n", 30_000) + "import os; os.system('" + bad + "')"),
	}
}

// hides asks for what the rule is about, under it or without it.
func (a *arena) hides(ruled bool) error {
	rule := sandbox.PolicyRule{ID: "no", When: sandbox.PolicyWhen{Severity: string(sandbox.SeverityWarning)}, Then: sandbox.PolicyThen{Refuse: "so"}}
	p, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{rule}})
	if err != nil {
		return err
	}
	e, _ := a.newEngine(agenttest.Bytes(a.T), func(o *engine.Options) {
		o.Scan = func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
			return scan.Scanner{Python: scan.InSandbox(run)}.Scan(ctx, scan.Source{File: req.File, Language: req.Language, Text: []byte(req.Code)})
		}
		if ruled {
			o.Rules = func() *policy.Policy { return p }
		}
	})
	var wrong []error
	for name, spec := range hidden() {
		if a.runsc != "" && spec.Driver != "" {
			spec.Driver = a.driver.Name()
		}
		r, err := a.within(e, spec)
		switch refused := err != nil && sandbox.AsError(err).Code == sandbox.CodePolicyRefused; {
		case ruled && !refused:
			wrong = append(wrong, fmt.Errorf("%s: it ran: %+v, %w", name, r, err))
		case !ruled && (err != nil || !strings.Contains(r.Stdout, "42")):
			wrong = append(wrong, fmt.Errorf("%s: it does not run: %+v, %w", name, r, err))
		}
	}
	if r, err := a.within(e, sandbox.Spec{Language: "python", Code: "print(6 * 7)"}); err != nil || !strings.Contains(r.Stdout, "42") {
		wrong = append(wrong, fmt.Errorf("an honest program: %+v, %w", r, err))
	}
	return errors.Join(wrong...)
}

// within runs a request in bounded time.
func (a *arena) within(e *engine.Engine, spec sandbox.Spec) (*sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	return e.Run(ctx, runs.Request{Spec: spec, NoArtifacts: true, NoResults: true})
}

// carriesCode brings a key out in every way.
const carriesCode = `
import os, sys, time
key = sys.argv[1][::-1]
print("stays here")
print("plain", key)
print("colours", key[:4] + "\x1b[31m" + key[4:])
print("unseen", key[:9] + "\u200b" + key[9:] + "\U000e0041")
for c in key: sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.005)
print()
print("error", key, file=sys.stderr)
open("a.csv", "w").write("name,value\nkey," + key + "\n")
open(key + ".txt", "w").write("x")
`

// carries brings a key out, past the gate or without it.
func (a *arena) carries(gated bool) error {
	const key = "AKIAQ7RT2LMB4XZ5KD3F"
	e, _ := a.newEngine(agenttest.Bytes(a.T), func(o *engine.Options) {
		o.Gates = func(g sandbox.Gate, secrets []secret.Secret) (execution.Gate, error) { return gate.New(g, secrets) }
	})
	spec := sandbox.Spec{Language: "python", Code: carriesCode, Args: []string{reverse(key)}, Artifacts: []string{"*.csv", "*.txt"}}
	if gated {
		spec.Gate = &sandbox.Gate{Keys: sandbox.GateRedact, ControlCharacters: sandbox.GateRedact, HiddenText: sandbox.GateRedact}
	}
	r, err := a.within(e, spec)
	if err != nil {
		return err
	}
	all, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text := string(all)
	for _, f := range r.Artifacts {
		text += "\n" + string(f.Content)
	}
	switch found := strings.Count(text, key); {
	case !strings.Contains(text, "stays here"):
		return fmt.Errorf("nothing came out: %s", text)
	case gated && found > 0:
		return fmt.Errorf("the key came out %d times: %s", found, text)
	case !gated && found < 5:
		return fmt.Errorf("the key came out %d times only: %s", found, text)
	}
	return nil
}
