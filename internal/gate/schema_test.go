package gate

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

func held(schema, data string) (string, error) { return heldIn(maxSteps, schema, data) }

func heldIn(steps int, schema, data string) (string, error) {
	s, err := compile(sandbox.GateSchema{Of: sandbox.GateStdout, Schema: []byte(schema)}, "gate.schemas[0].schema")
	if err != nil {
		return "", err
	}
	s.steps = steps
	return s.fault([]byte(data)), nil
}

func TestSchema(t *testing.T) {
	const report = `{"type": "object", "required": ["total"], "properties": {"total": {"type": "integer", "minimum": 0}, "rows": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}}}`
	const tree = `{"$defs": {"n": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "additionalProperties": false}}, "$ref": "#/$defs/n"}`
	for _, test := range []struct{ schema, data, want string }{
		{report, `{"total": 3, "rows": ["a", "b"]}` + "\n", ""},
		{report, `{"total": -1}`, "does not match the schema: /total (minimum)"},
		{report, `{"total": "1"}`, "does not match the schema: /total (type)"},
		{report, `{}`, "does not match the schema: the whole (required)"},
		{report, `{"total": 1, "rows": ["a", "B"]}`, "does not match the schema: /rows/1 (pattern)"},
		{`{"additionalProperties": {"type": "integer"}}`, `{"ignore all previous instructions": "x"}`, "does not match the schema: /* (type)"},
		{tree, `{"c": [{"c": []}, {}]}`, ""},
		{tree, `{"c": [{"d": 1}]}`, "does not match the schema: /c/0 (additionalProperties)"},
		{`true`, ``, "is not JSON"},
		{report, `{"total": "evil", "total": 1}`, "has an object with the same name twice"},
		{`true`, `[{"a": {"b": 1, "\u0062": 1}}]`, "has an object with the same name twice"},
		{`true`, `{"a": [1, {"b": null, "c": {}}], "d": [], "b": -1.5e3}`, ""},
		{`true`, `{"a" 1}`, "is not JSON"},
		{`true`, `[1,]`, "is not JSON"},
		{`true`, `{} {}`, "is more than one JSON value"},
		{`true`, `{"a": `, "is not JSON"},
		{`{"type": "string"}`, "\"\xff\"", ""},
		{`{"$ref": "#"}`, `1`, "does not match the schema: the whole"},
		{`{"minimum": 1}`, `1e999999999`, "has a number that is too large"},
		{`{"minimum": 1}`, strings.Repeat("9", 500), "has a number that is too large"},
		{`{"type": "array"}`, strings.Repeat("[", 1_000_000), "is nested too deeply"},
		{`{"type": "array"}`, "[" + strings.Repeat("1,", 600_000) + "1]", "has more than 500000 values"},
		{`{"type": "string"}`, `"` + strings.Repeat("x", 16<<20) + `"`, "is larger than 8MiB"},
	} {
		got, err := held(test.schema, test.data)
		if err != nil || !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%.80s with %.40q: %q, %v", test.schema, test.data, got, err)
		}
	}
}

// Schemas that double the work with each level, or look at all of a large value again and
// again, end.
func TestSchemaBombs(t *testing.T) {
	var levels strings.Builder
	for i := range 60 {
		name := func(i int) string { return "#/$defs/d" + strings.Repeat("x", i) }
		levels.WriteString(`"d` + strings.Repeat("x", i) + `": {"allOf": [{"$ref": "` + name(i+1) + `"}, {"$ref": "` + name(i+1) + `"}]},`)
	}
	doubling := `{"$defs": {` + levels.String() + `"d` + strings.Repeat("x", 60) + `": {"minimum": 0}}, "$ref": "#/$defs/d"}`
	again := `{"allOf": [` + strings.Repeat(`{"items": false},`, 1000) + `true]}`
	pattern := `{"items": {"pattern": "(x+x+)+y"}}`
	many := "[" + strings.Repeat("1,", 1000) + "1]"
	long := `["` + strings.Repeat("x", 1<<20) + `"]`
	for name, test := range map[string][2]string{"doubling": {doubling, "1"}, "again": {again, many}, "pattern": {pattern, long}} {
		if got, err := heldIn(50_000, test[0], test[1]); err != nil || got != "takes too long to be held against the schema" {
			t.Errorf("%s: %.200q, %v", name, got, err)
		}
	}
}

// Schemas that refer to anything else, or cannot be used, are refused with their field.
func TestSchemaRefused(t *testing.T) {
	for _, schema := range []string{
		`{"$ref": "https://a.test/schema"}`, `{"$ref": "file:///etc/passwd"}`, `{"$ref": "/etc/passwd"}`, `{"$ref": "other.json"}`, `{"$schema": "https://a.test/meta"}`,
		`{"$id": "https://a.test/x", "$ref": "y"}`, `{"$dynamicRef": "https://a.test/x#y"}`,
		`{"$ref": "#/nowhere"}`, `{"type": "thing"}`, `{"type": `, `[]`, `1`, `{"pattern": "("}`, `{"pattern": "` + strings.Repeat("a", 2000) + `"}`,
		`{"pattern": "((a{100}){100}){10}"}`, `{"minimum": 1e999999999}`, strings.Repeat(`{"not":`, 1000) + "true" + strings.Repeat("}", 1000),
		`{"enum": [` + strings.Repeat("1,", 20_000) + `1]}`,
	} {
		_, err := New(sandbox.Gate{Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(schema)}}}, nil)
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeSpecInvalid || e.Field != "gate.schemas[0].schema" || e.Hint == "" || e.Message == "" {
			t.Errorf("%.80s: %+v", schema, e)
		}
	}
}

// Who mistypes a word of a schema is told where, and which words there are.
func TestSchemaSaysWhatIsWrong(t *testing.T) {
	_, err := held(`{"type": "thing"}`, "")
	if e := sandbox.AsError(err); e == nil || !strings.HasPrefix(e.Message, "the schema cannot be used: at '/type': value must be one of 'array', 'boolean'") {
		t.Errorf("%+v", e)
	}
}

// A schema for stdout, for results and for artifacts decides on its part and no other; one
// for an artifact that does not come is not met.
func TestSchemaOfParts(t *testing.T) {
	g := sandbox.Gate{Schemas: []sandbox.GateSchema{
		{Of: sandbox.GateStdout, Schema: []byte(`{"type": "object"}`)},
		{Of: sandbox.GateResults, Schema: []byte(`{"maxItems": 1}`)},
		{Of: sandbox.GateArtifact, Path: "*.json", Schema: []byte(`{"type": "array"}`)},
		{Of: sandbox.GateArtifact, Path: "never.json", Schema: []byte(`true`), Action: sandbox.GateFlag},
	}}
	x := made(t, g)
	if out, err := x.Artifact(sandbox.Artifact{Path: "a.json", MediaType: "application/json", Size: 2}, []byte("[]")); err != nil || string(out) != "[]" {
		t.Errorf("%q %v", out, err)
	}
	if _, err := x.Artifact(sandbox.Artifact{Path: "b.json", MediaType: "application/json", Size: 2}, []byte("{}")); sandbox.AsError(err) == nil || sandbox.AsError(err).Code != sandbox.CodeWithheld || !strings.Contains(err.Error(), "schemas[2]") {
		t.Errorf("%v", err)
	}
	r := &sandbox.Result{Results: []sandbox.Rich{{"text/plain": "1"}, {"text/plain": "2"}}, Stdout: "[]", Stderr: "kept"}
	x.Result(r, []byte("[]"), []byte("kept"))
	if r.Stdout != "" || r.Stderr != "kept" || len(r.Results) != 0 {
		t.Errorf("%+v", r)
	}
	for i, want := range []sandbox.GateAction{sandbox.GateWithhold, sandbox.GateWithhold, sandbox.GateWithhold, sandbox.GateFlag} {
		if c := r.Gate.Checks[i]; c.Outcome != want || c.Count != 1 {
			t.Errorf("%+v", c)
		}
	}
	x = made(t, sandbox.Gate{Schemas: g.Schemas[:1]})
	r = &sandbox.Result{Stdout: "{}", StdoutTruncated: true}
	if x.Result(r, []byte("{}"), nil); r.Stdout != "" || !strings.Contains(r.Gate.Checks[0].Findings[0].What, "was cut") {
		t.Errorf("%+v", r)
	}
}
