package sandbox

import (
	"strings"
	"testing"
)

func TestGateValidate(t *testing.T) {
	schema := []byte(`{"type": "object"}`)
	good := &Gate{
		Keys: GateRedact, Scripts: GateWithhold, MediaTypes: GateFlag, ContextBytes: 8192,
		Artifacts: &GateArtifacts{Max: 1, MediaTypes: []string{"text/csv", "image/*", "application/vnd.x+json"}, Action: GateFlag},
		Schemas:   []GateSchema{{Of: GateStdout, Schema: schema}, {Of: GateArtifact, Path: "out/*.json", Schema: schema, Action: GateFlag}},
	}
	for _, g := range []*Gate{nil, {}, good} {
		if err := g.Validate(); err != nil {
			t.Errorf("%+v: %v", g, err)
		}
	}
	for field, g := range map[string]*Gate{
		"gate.keys":                     {Keys: "drop"},
		"gate.secrets":                  {Secrets: GatePass},
		"gate.media_types":              {MediaTypes: GateRedact},
		"gate.context_bytes":            {ContextBytes: MaxGateContext + 1},
		"gate.artifacts.max":            {Artifacts: &GateArtifacts{Max: -1}},
		"gate.artifacts.media_types[1]": {Artifacts: &GateArtifacts{MediaTypes: []string{"a/b", "csv"}}},
		"gate.artifacts.media_types[0]": {Artifacts: &GateArtifacts{MediaTypes: []string{"Text/CSV; x=1"}}},
		"gate.artifacts.action":         {Artifacts: &GateArtifacts{Action: GateRedact}},
		"gate.schemas[0].of":            {Schemas: []GateSchema{{Of: "stderr", Schema: schema}}},
		"gate.schemas[0].path":          {Schemas: []GateSchema{{Of: GateArtifact, Schema: schema}}},
		"gate.schemas[1].path":          {Schemas: []GateSchema{{Of: GateStdout, Schema: schema}, {Of: GateArtifact, Path: "a[", Schema: schema}}},
		"gate.schemas[0].schema":        {Schemas: []GateSchema{{Of: GateStdout}}},
		"gate.schemas[0].action":        {Schemas: []GateSchema{{Of: GateStdout, Schema: schema, Action: GateRedact}}},
	} {
		e := AsError(Spec{Code: "1", Limits: DefaultLimits(), Gate: g}.Validate())
		if e == nil || e.Code != CodeSpecInvalid || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %+v", field, e)
		}
	}
	for field, g := range map[string]*Gate{
		"gate.schemas": {Schemas: make([]GateSchema, MaxGateSchemas+1)}, "gate.schemas[0].schema": {Schemas: []GateSchema{{Of: GateStdout, Schema: []byte(strings.Repeat(" ", MaxGateSchemaBytes+1))}}},
	} {
		if e := AsError(g.Validate()); e == nil || e.Code != CodeTooLarge || e.Field != field {
			t.Errorf("%s: %+v", field, e)
		}
	}
}

// A merged gate is at least as strict as either.
func TestMergeOfGates(t *testing.T) {
	actions := []GateAction{"", GateFlag, GateRedact, GateWithhold}
	for i, a := range actions {
		for j, b := range actions {
			m := (&Gate{Keys: a, Formulas: GateFlag}).Merge(&Gate{Keys: b})
			if want := actions[max(i, j)]; m.Keys != want || m.Formulas != GateFlag {
				t.Errorf("%q and %q: %+v", a, b, m)
			}
		}
	}
	var none *Gate
	if none.Merge(nil) != nil || none.Merge(&Gate{Keys: GateFlag}).Keys != GateFlag || (&Gate{Keys: GateFlag}).Merge(nil).Keys != GateFlag {
		t.Error("one of two")
	}
	a := &Gate{ContextBytes: 1000, Artifacts: &GateArtifacts{Max: 3, MaxBytes: 10, MediaTypes: []string{"image/*", "text/csv"}, Action: GateFlag}, Schemas: []GateSchema{{Of: "a"}}, Validators: []GateValidator{{Code: "a"}}}
	b := &Gate{ContextBytes: 2000, Artifacts: &GateArtifacts{Max: 5, MaxTotalBytes: 7, MediaTypes: []string{"image/png", "text/*"}}, Schemas: []GateSchema{{Of: "b"}}, Validators: []GateValidator{{Code: "b"}}}
	m := a.Merge(b)
	if m.ContextBytes != 1000 || m.Artifacts.Max != 3 || m.Artifacts.MaxBytes != 10 || m.Artifacts.MaxTotalBytes != 7 || m.Artifacts.Action != GateWithhold ||
		strings.Join(m.Artifacts.MediaTypes, " ") != "image/png text/csv" || len(m.Schemas) != 2 || len(m.Validators) != 2 || m.Validators[1].Code != "b" || m.Schemas[0].Of != "a" {
		t.Errorf("%+v %+v", m, m.Artifacts)
	}
	if a.Artifacts.Max != 3 || len(a.Schemas) != 1 {
		t.Error("what was merged has changed")
	}
	apart := (&Gate{Artifacts: &GateArtifacts{MediaTypes: []string{"text/csv"}}}).Merge(&Gate{Artifacts: &GateArtifacts{MediaTypes: []string{"image/*"}}})
	if apart.Artifacts.MediaTypes == nil || len(apart.Artifacts.MediaTypes) != 0 {
		t.Errorf("two lists with nothing in both allow %v", apart.Artifacts.MediaTypes)
	}
}
