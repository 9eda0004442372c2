package sandbox

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// GateAction is what becomes of output in which a check of the gate has found something.
type GateAction string

// The actions, the weakest first. The empty action is that nothing is looked for.
const (
	GateFlag     GateAction = "flag"     // it comes out, and the result says what was found
	GateRedact   GateAction = "redact"   // it comes out without what was found
	GateWithhold GateAction = "withhold" // it does not come out
)

// GatePass is the outcome of a check that has found nothing. The other outcomes are the
// actions.
const GatePass GateAction = "pass"

// Gate says how the output of a run, or of a living sandbox, is checked before anybody has it. The zero value checks
// nothing. What a check's action cannot do to a part of the output it does by withholding
// it: an image has no text from which something could be taken out.
type Gate struct {
	// ControlCharacters are those that terminals obey, HiddenText what nobody sees:
	// invisible characters and those that turn the order of text around.
	ControlCharacters GateAction `json:"control_characters,omitempty"`
	HiddenText        GateAction `json:"hidden_text,omitempty"`
	// Secrets are those that the run's endpoints name, as they are and in the forms in which
	// programs write them; Keys is what looks like a key of somebody's.
	Secrets GateAction `json:"secrets,omitempty"`
	Keys    GateAction `json:"keys,omitempty"`
	// Instructions are sentences that talk to a model. It is advice: nobody knows them all.
	Instructions GateAction `json:"instructions,omitempty"`
	// Formulas are those of spreadsheets, in CSV and in Excel's files; Scripts are what HTML
	// and SVG would run or load; MediaTypes are files whose content is not what their names
	// say. Scripts and MediaTypes cannot be redacted.
	Formulas   GateAction `json:"formulas,omitempty"`
	Scripts    GateAction `json:"scripts,omitempty"`
	MediaTypes GateAction `json:"media_types,omitempty"`
	// Artifacts bounds what comes out, Schemas are what it has to be like.
	Artifacts *GateArtifacts `json:"artifacts,omitempty"`
	Schemas   []GateSchema   `json:"schemas,omitempty"`
	// Validators are programs of the caller's own that judge what the other checks let out.
	Validators []GateValidator `json:"validators,omitempty"`
	// ContextBytes asks for stdout and stderr as a model is given them: of each at most so
	// many bytes, from its beginning and its end. 0: not at all.
	ContextBytes int64 `json:"context_bytes,omitempty" zero:"refused"`
}

// GateArtifacts bounds artifacts. A zero is no bound.
type GateArtifacts struct {
	Max           int64 `json:"max,omitempty" zero:"refused"`
	MaxBytes      int64 `json:"max_bytes,omitempty" zero:"refused"`       // of each
	MaxTotalBytes int64 `json:"max_total_bytes,omitempty" zero:"refused"` // of all together
	// MediaTypes are those that may come out, by content, such as "text/csv" or "image/*";
	// nil: all, empty: none.
	MediaTypes []string `json:"media_types,omitzero"`
	// Action is GateWithhold, the default, or GateFlag.
	Action GateAction `json:"action,omitempty"`
}

// The parts of an output that a schema can be for.
const (
	GateStdout   = "stdout"
	GateResults  = "results"
	GateArtifact = "artifact"
)

// GateSchema is what a part of the output has to be like.
type GateSchema struct {
	Of     string          `json:"of"`             // GateStdout, GateResults (the whole list) or GateArtifact
	Path   string          `json:"path,omitempty"` // of artifacts: a path or a pattern, as path.Match takes it
	Schema json.RawMessage `json:"schema"`         // JSON Schema, without references to elsewhere
	Action GateAction      `json:"action,omitempty"`
}

// Bounds on gates.
const (
	MaxGateSchemas     = 16
	MaxGateSchemaBytes = 64 << 10
	MaxGateMediaTypes  = 100
	MinGateContext     = 256
	MaxGateContext     = 1 << 20
)

// GateCheck is one check of a gate by name, with the actions that it can take.
type GateCheck struct {
	Name    string
	Action  *GateAction
	Actions []GateAction
}

// Checks are the checks that are an action and nothing else, with where theirs stand in g.
func (g *Gate) Checks() []GateCheck {
	all, noRedaction := []GateAction{GateFlag, GateRedact, GateWithhold}, []GateAction{GateFlag, GateWithhold}
	return []GateCheck{
		{"control_characters", &g.ControlCharacters, all},
		{"hidden_text", &g.HiddenText, all},
		{"secrets", &g.Secrets, all},
		{"keys", &g.Keys, all},
		{"instructions", &g.Instructions, all},
		{"formulas", &g.Formulas, all},
		{"scripts", &g.Scripts, noRedaction},
		{"media_types", &g.MediaTypes, noRedaction},
	}
}

// Empty says that g checks nothing and cuts nothing.
func (g *Gate) Empty() bool {
	if g == nil {
		return true
	}
	for _, c := range g.Checks() {
		if *c.Action != "" {
			return false
		}
	}
	return g.Artifacts == nil && len(g.Schemas)+len(g.Validators) == 0 && g.ContextBytes == 0
}

// Validate says what is wrong with g; of a schema only what can be seen without reading it.
// Each error names its field, below "gate".
func (g *Gate) Validate() error {
	if g == nil {
		return nil
	}
	for _, c := range g.Checks() {
		if err := checkGateAction("gate."+c.Name, *c.Action, c.Actions); err != nil {
			return err
		}
	}
	if g.ContextBytes != 0 && (g.ContextBytes < MinGateContext || g.ContextBytes > MaxGateContext) {
		return specError("gate.context_bytes", fmt.Sprintf("%d is not between %d and %d", g.ContextBytes, MinGateContext, MaxGateContext)).
			WithAdvice(Advise("set %s", Set("gate.context_bytes", 8192)))
	}
	if err := g.Artifacts.validate(); err != nil {
		return err
	}
	if len(g.Schemas) > MaxGateSchemas {
		return tooLarge("gate.schemas", int64(len(g.Schemas)), MaxGateSchemas)
	}
	for i, s := range g.Schemas {
		if err := s.validate(fmt.Sprintf("gate.schemas[%d]", i)); err != nil {
			return err
		}
	}
	if len(g.Validators) > MaxGateValidators {
		return tooLarge("gate.validators", int64(len(g.Validators)), MaxGateValidators)
	}
	for i, v := range g.Validators {
		if err := v.validate(fmt.Sprintf("gate.validators[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// validateLiving is Validate for a living sandbox.
func (g *Gate) validateLiving() error {
	if g != nil && len(g.Validators) > 0 {
		return specError("gate.validators", "validators judge what comes out of a run, all of it, and what comes out of a living sandbox has no end").
			WithAdvice(Advise("%s, or run the program instead", Omit("gate.validators")))
	}
	return g.Validate()
}

func checkGateAction(field string, a GateAction, known []GateAction) error {
	if a == "" || slices.Contains(known, a) {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	message := fmt.Sprintf("no action \"%s\"", SafeText(string(a), 40))
	if a == GateRedact {
		message = "nothing can be taken out here, so it cannot redact"
	}
	return specError(field, message).WithHint("it can be " + strings.Join(names, ", "))
}

func (a *GateArtifacts) validate() error {
	if a == nil {
		return nil
	}
	for _, n := range []struct {
		field string
		value int64
	}{{"max", a.Max}, {"max_bytes", a.MaxBytes}, {"max_total_bytes", a.MaxTotalBytes}} {
		if n.value < 0 {
			return specError("gate.artifacts."+n.field, "is negative").WithHint("leave it out for no bound")
		}
	}
	if len(a.MediaTypes) > MaxGateMediaTypes {
		return tooLarge("gate.artifacts.media_types", int64(len(a.MediaTypes)), MaxGateMediaTypes)
	}
	for i, m := range a.MediaTypes {
		if !isMediaPattern(m) {
			return specError(fmt.Sprintf("gate.artifacts.media_types[%d]", i), fmt.Sprintf("\"%s\" is no media type", SafeText(m, 60))).
				WithHint("write it in small letters and without parameters, such as text/csv or image/*")
		}
	}
	return checkGateAction("gate.artifacts.action", a.Action, []GateAction{GateFlag, GateWithhold})
}

func isMediaPattern(m string) bool {
	kind, sub, ok := strings.Cut(m, "/")
	return ok && len(m) <= 127 && isMediaWord(kind) && (sub == "*" || isMediaWord(sub))
}

func isMediaWord(w string) bool {
	return w != "" && strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789!#$&-^_.+") == ""
}

func (s GateSchema) validate(field string) error {
	switch {
	case !slices.Contains([]string{GateStdout, GateResults, GateArtifact}, s.Of):
		return specError(field+".of", fmt.Sprintf("\"%s\" is no part of an output", SafeText(s.Of, 40))).
			WithHint("a schema is for stdout, results or artifact")
	case s.Of == GateArtifact && s.Path == "":
		return specError(field+".path", "says which artifact the schema is for, and is missing").WithHint(`such as "path": "report.json"`)
	case s.Of != GateArtifact && s.Path != "":
		return specError(field+".path", "is for artifacts only").WithHint(`leave it out, or say "of": "artifact"`)
	case len(s.Schema) == 0:
		return specError(field+".schema", "is missing").WithHint(`such as {"type": "object"}`)
	case len(s.Schema) > MaxGateSchemaBytes:
		return tooLarge(field+".schema", int64(len(s.Schema)), MaxGateSchemaBytes)
	}
	if s.Of == GateArtifact {
		if err := CheckGuestPath(field+".path", s.Path); err != nil {
			return err
		}
		if _, err := path.Match(s.Path, ""); err != nil {
			return specError(field+".path", "is no valid pattern").WithHint(`a [ needs its ]; write \[ for the character itself`)
		}
	}
	return checkGateAction(field+".action", s.Action, []GateAction{GateFlag, GateWithhold})
}
