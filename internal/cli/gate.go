package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"pinfold/internal/hostfiles"
	"pinfold/internal/language"
	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// maxGateFile bounds a file with a gate: its schemas, with white space.
const maxGateFile = 4 << 20

// The flags whose fields are below "gate" in JSON.
const (
	schemaFlag    = "output-schema"
	validatorFlag = "gate-validator"
)

// allChecks is the name that stands for every check that is an action and nothing else.
const allChecks = "all"

// gates says that the flags ask for a gate.
func (f *runFlags) gates() bool {
	return len(f.gate) > 0 || f.outputSchema != "" || len(f.validators) > 0 || f.contextBytes > 0
}

// addGate puts the gate of the flags over the spec's.
func (a *app) addGate(f *runFlags, spec *sandbox.Spec) error {
	if !f.gates() {
		return nil
	}
	var g sandbox.Gate
	if spec.Gate != nil {
		g = *spec.Gate
	}
	if err := a.addChecks(&g, f.gate); err != nil {
		return err
	}
	if f.outputSchema != "" {
		data, err := a.readBounded(f.outputSchema, sandbox.MaxGateSchemaBytes)
		if err == nil && !json.Valid(data) {
			err = hostfiles.PathError(sandbox.CodeSpecInvalid, f.outputSchema, "is not JSON").WithHint(`it has a JSON Schema, such as {"type": "object", "required": ["total"]}`)
		}
		if err != nil {
			return prefixed("--output-schema", err)
		}
		g.Schemas = append(slices.Clone(g.Schemas), sandbox.GateSchema{Of: sandbox.GateStdout, Schema: data})
	}
	for _, name := range f.validators {
		v, err := a.readValidator(name)
		if err != nil {
			return prefixed("--gate-validator", err)
		}
		g.Validators = append(slices.Clone(g.Validators), v)
	}
	if f.contextBytes > 0 {
		g.ContextBytes = int64(f.contextBytes)
	}
	spec.Gate = &g
	return nil
}

// addChecks puts what --gate says over a gate, each time that it was given.
func (a *app) addChecks(g *sandbox.Gate, all []string) error {
	for _, given := range all {
		name, action, isCheck := strings.Cut(given, "=")
		if isCheck && !looksLikeFile(given) {
			if err := setCheck(g, name, sandbox.GateAction(action)); err != nil {
				return err
			}
			continue
		}
		data, err := a.readBounded(given, maxGateFile)
		if err != nil {
			e := sandbox.AsError(err)
			if e.Code == sandbox.CodeFileNotFound {
				e = e.WithHint("name a check with its action, such as --gate keys=redact, or a file with a gate in JSON")
			}
			return prefixed("--gate", e)
		}
		var more sandbox.Gate
		if err := strictjson.Decode(data, &more); err != nil {
			return inFile("--gate", given, err)
		}
		*g = *more.Merge(g)
	}
	return nil
}

// gateUsage is what --gate takes.
const gateUsage = "check what comes out: a check and flag, redact or withhold; all=ACTION; or a file with a gate, in JSON; may be repeated"

// readValidator makes a validator of a program's file, whose language its name or its first
// line tells.
func (a *app) readValidator(name string) (sandbox.GateValidator, error) {
	code, err := a.readBounded(name, sandbox.MaxGateValidatorBytes)
	if err != nil {
		return sandbox.GateValidator{}, err
	}
	l, err := language.Detect(name, code[:min(len(code), maxFirstLine)])
	if err != nil {
		return sandbox.GateValidator{}, sandbox.AsError(err).WithHint("end its name as its language's files do, such as judge.py, or begin it with a #! line")
	}
	return sandbox.GateValidator{Language: l.Name, Code: string(code)}, nil
}

// setCheck gives a check its action. All of them get an action that each can take.
func setCheck(g *sandbox.Gate, name string, action sandbox.GateAction) error {
	var names []string
	found := false
	for _, c := range g.Checks() {
		names = append(names, c.Name)
		switch {
		case name == c.Name:
			*c.Action, found = action, true
		case name == allChecks && action == sandbox.GateRedact && !slices.Contains(c.Actions, action):
			*c.Action, found = sandbox.GateWithhold, true
		case name == allChecks:
			*c.Action, found = action, true
		}
	}
	switch {
	case !found:
		return usageError("--gate: no check \"%s\"", sandbox.SafeText(name, 40)).WithHint("the checks are " + strings.Join(names, ", ") + "; or all")
	case action == "":
		return usageError("--gate: %s has no action", name).WithHint("write --gate " + name + "=flag, =redact or =withhold")
	}
	return nil
}

// byteSize is a flag with a number of bytes; 0: not given.
type byteSize int64

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error {
	n, err := sandbox.ParseSize(text)
	if err != nil {
		return err
	}
	if n < sandbox.MinGateContext || n > sandbox.MaxGateContext {
		return usageError("%s is outside %s to %s", sandbox.SafeText(text, 40), sandbox.FormatSize(sandbox.MinGateContext), sandbox.FormatSize(sandbox.MaxGateContext)).WithHint("such as 8KiB")
	}
	*s = byteSize(n)
	return nil
}

// String is empty where none was given.
func (s *byteSize) String() string {
	if s == nil || *s == 0 {
		return ""
	}
	return sandbox.FormatSize(int64(*s))
}

// Type is the placeholder in help.
func (*byteSize) Type() string { return "SIZE" }

// excerpts prints what --context leaves of the output.
func (o *liveOutput) excerpts(r *sandbox.Result) {
	if o.stdout == nil || r.Gate == nil || r.Gate.Context == nil {
		return
	}
	stdout, stderr := o.writers()
	_, _ = io.WriteString(stdout, r.Gate.Context.Stdout.Text)
	_, _ = io.WriteString(stderr, r.Gate.Context.Stderr.Text)
}

// gateNotes says what the gate has found, and what it has done.
func (a *app) gateNotes(r *sandbox.Result, o reportOptions) {
	if r.Gate == nil {
		return
	}
	a.outcomes(r.Gate)
	if x := r.Gate.Context; x != nil && o.context > 0 && x.Stdout.LeftOutBytes+x.Stderr.LeftOutBytes > 0 {
		a.say("--context left out %s of stdout and %s of stderr; --json has all of it", sandbox.FormatSize(x.Stdout.LeftOutBytes), sandbox.FormatSize(x.Stderr.LeftOutBytes))
	}
}

// outcomes says which checks of a gate have found something.
func (a *app) outcomes(g *sandbox.GateResult) {
	for _, c := range g.Checks {
		if c.Outcome != sandbox.GatePass {
			a.say("gate: %s: %s", sandbox.SafeText(c.Check, 60), outcomeText(c))
		}
	}
}

// outcomeText is what one check has found and done, with the first places.
func outcomeText(c sandbox.GateOutcome) string {
	verb := map[sandbox.GateAction]string{sandbox.GateFlag: "found", sandbox.GateRedact: "took out", sandbox.GateWithhold: "withheld"}[c.Outcome]
	var places []string
	for i, f := range c.Findings {
		if i == 3 {
			places = append(places, "…")
			break
		}
		place := f.Part
		if f.Path != "" {
			place += " " + f.Path
		}
		if f.Line > 0 {
			place += fmt.Sprintf(" line %d", f.Line)
		}
		places = append(places, fmt.Sprintf("%s in %s", f.What, place))
	}
	return sandbox.SafeText(fmt.Sprintf("%s (%d): %s", verb, c.Count, strings.Join(places, "; ")), 400)
}
