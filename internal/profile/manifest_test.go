package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

func compiled(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("tool.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// levels are those of a host with all drivers.
func levels(driver string) string {
	return map[string]string{"": sandbox.LevelVM, "process": sandbox.LevelProcess}[driver]
}

// manifest shows profiles of every shape.
func manifest(t *testing.T, form string) sandbox.Manifest {
	t.Helper()
	many := sandbox.Profile{Name: strings.Repeat("m", 64), Language: "c", Description: strings.Repeat("d", maxDescription)}
	for range 20 {
		many.Network.Endpoints = append(many.Network.Endpoints, endpoint(t, "GET https://"+strings.Repeat("x", 40+len(many.Network.Endpoints))+".test/a/**", ""))
	}
	m, err := Manifest(form, set(t, wide(t), living(), many, sandbox.Profile{Name: "plots", Language: "python"}).Tools("t", nil, levels))
	if err != nil || len(m.Tools) != 4 || len(m.Profiles) != 4 {
		t.Fatal(m, err)
	}
	return m
}

// A validator of JSON Schema takes the tools of each form for what they are to be.
func TestManifestIsOfItsForm(t *testing.T) {
	for _, form := range []string{sandbox.FormOpenAI, sandbox.FormAnthropic, sandbox.FormMCP} {
		text, err := os.ReadFile("testdata/" + form + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		s := compiled(t, text)
		for _, tool := range manifest(t, form).Tools {
			if err := validate(t, s, tool); err != nil {
				t.Errorf("%s: %s\n%v", form, tool, err)
			}
			for old, wrong := range map[string]string{`"additionalProperties":false`: `"additionalProperties":1`, `"name":`: `"nom":`, `"type":"object"`: `"type":"thing"`} {
				if bad := bytes.ReplaceAll(tool, []byte(old), []byte(wrong)); validate(t, s, bad) == nil {
					t.Errorf("%s: the schema takes %s", form, wrong)
				}
			}
		}
	}
	for _, tool := range manifest(t, sandbox.FormOpenAI).Tools {
		var doc struct {
			Function struct{ Parameters map[string]any }
		}
		if err := json.Unmarshal(tool, &doc); err != nil {
			t.Fatal(err)
		}
		allRequired(t, doc.Function.Parameters)
	}
	if _, err := Manifest("xml", nil); sandbox.AsError(err).Field != "form" {
		t.Error(err)
	}
}

// allRequired checks what strict schemas of OpenAI's need and JSON Schema cannot say.
func allRequired(t *testing.T, schema map[string]any) {
	t.Helper()
	properties, some := schema["properties"].(map[string]any)
	var required []string
	for _, r := range schema["required"].([]any) {
		required = append(required, r.(string))
	}
	slices.Sort(required)
	if !some || !slices.Equal(required, slices.Sorted(maps.Keys(properties))) {
		t.Errorf("not all of %v are required", slices.Sorted(maps.Keys(properties)))
	}
	for _, p := range properties {
		if items, ok := p.(map[string]any)["items"].(map[string]any); ok && items["properties"] != nil {
			allRequired(t, items)
		}
	}
}

// What a tool takes is what a run takes beside the profile's name, in each form; what it gives
// is what a result has.
func TestSchemasAreOfRequestsAndResults(t *testing.T) {
	openAI := compiled(t, encoded(input(true)))
	others := compiled(t, encoded(input(false)))
	for body, schema := range map[string]*jsonschema.Schema{
		`{"code": "print(1)", "stdin": null, "args": null, "files": null, "artifacts": null}`:                                         openAI,
		`{"code": "print(1)", "stdin": "x", "args": ["a"], "files": [{"path": "a/b.csv", "content": "1,2"}], "artifacts": ["*.png"]}`: others,
		`{"code": "print(1)"}`: others,
	} {
		if err := validate(t, schema, []byte(body)); err != nil {
			t.Error(err)
		}
		var spec sandbox.Spec
		if err := strictjson.Decode([]byte(`{"profile": "wide", `+body[1:]), &spec); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		spec, _, err := set(t, wide(t)).Run("t", spec)
		if err == nil {
			err = spec.WithDefaults().Validate()
		}
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, wrong := range []string{`{}`, `{"code": "x", "limits": {}}`, `{"code": "x", "network": "none"}`} {
		if validate(t, openAI, []byte(wrong)) == nil || validate(t, others, []byte(wrong)) == nil {
			t.Errorf("tools take %s", wrong)
		}
	}
	gives := compiled(t, encoded(output()))
	one := 0
	for _, r := range []sandbox.Result{
		{ID: "run_1", Status: sandbox.StatusSucceeded, ExitCode: &one, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, Artifacts: []sandbox.Artifact{{Path: "a"}}, Profile: &sandbox.ProfileRef{Name: "a", Digest: "b"}},
		{ID: "run_1", Status: sandbox.StatusKilled, Cause: sandbox.Cause{Kind: sandbox.CauseMemory, Limit: 5, Observed: 6}, Artifacts: []sandbox.Artifact{}, Profile: &sandbox.ProfileRef{}},
	} {
		if err := validate(t, gives, encoded(r)); err != nil {
			t.Error(err)
		}
	}
	if validate(t, gives, []byte(`{"status": "succeeded"}`)) == nil {
		t.Error("anything is a result")
	}
}

// The blast radius is what a profile has, and no less.
func TestBlastRadius(t *testing.T) {
	radius := map[string]sandbox.BlastRadius{}
	for _, raw := range manifest(t, sandbox.FormPinfold).Tools {
		var tool sandbox.Tool
		if err := strictjson.Decode(raw, &tool); err != nil {
			t.Fatal(err)
		}
		radius[tool.Profile.Name] = tool.BlastRadius
	}
	wide := radius["wide"]
	if !slices.Equal(wide.Endpoints, []string{"GET,HEAD https://api.test/repos/**", "plain.test:80,443", "db.test:5432=10.0.0.7", "*.many.test:443"}) || !slices.Equal(wide.Secrets, []string{"key"}) ||
		wide.BytesUp != 1000 || wide.Requests != 100 || wide.MemoryBytes != 64<<20 || wide.WallTimeMS != 5000 || wide.CPUs != 2 || wide.Compile != nil || wide.Weakest != "namespace" || wide.Strongest != "vm" || len(wide.WritableMounts) != 0 {
		t.Errorf("%+v", wide)
	}
	if plots := radius["plots"]; plots.BytesUp != 0 || len(plots.Endpoints) != 0 || plots.Endpoints == nil {
		t.Errorf("%+v", plots)
	}
	if living := radius["living"]; living.Weakest != "process" || living.Strongest != "process" || living.LivingMS != 60_000 {
		t.Errorf("%+v", living)
	}
	c := radius[strings.Repeat("m", 64)]
	if c.Compile == nil || c.Compile.MemoryBytes < c.MemoryBytes {
		t.Errorf("%+v", c.Compile)
	}
	p := sandbox.Profile{Name: "p", Language: "python", Isolation: sandbox.LevelVM}
	if r := set(t, p).Tools("t", nil, func(string) string { return sandbox.LevelNamespace })[0].BlastRadius; r.Strongest != "" || r.Weakest != "vm" {
		t.Errorf("on a host that cannot: %+v", r)
	}
}

// What was signed is taken, however it is indented; what was changed is not, nor what another
// key has signed.
func TestManifestIsSigned(t *testing.T) {
	keys := map[string]string{} // a text by its signature
	sign := func(text string) (string, error) {
		keys["signature of "+text] = text
		return "signature of " + text, nil
	}
	open := func(signature string) (string, error) {
		if text, ok := keys[signature]; ok {
			return text, nil
		}
		return "", errors.New("of another key")
	}
	for _, form := range sandbox.ManifestForms() {
		signed, err := Seal(manifest(t, form), sign)
		if err != nil {
			t.Fatal(err)
		}
		text := encoded(signed)
		var indented bytes.Buffer
		if err := json.Indent(&indented, text, "", "  "); err != nil {
			t.Fatal(err)
		}
		for _, good := range [][]byte{text, indented.Bytes()} {
			if m, err := Verify(good, open); err != nil || m.Form != form || len(m.Tools) != 4 {
				t.Errorf("%s: %v", form, err)
			}
		}
		for old, changed := range map[string]string{
			`64`: `65`, `plots`: `blots`, `"form":"` + form: `"form":"x` + form, `"signature":"`: `"signature":"x`, `"manifest":`: `"manifest":{},"manifest":`,
		} {
			bad := strings.Replace(string(text), old, changed, 1)
			if bad == string(text) {
				continue
			}
			if _, err := Verify([]byte(bad), open); err == nil {
				t.Errorf("%s: with %s it is taken", form, changed)
			}
		}
		signed.Signature = ""
		for _, bad := range []string{string(encoded(signed)), "", "{}", "[]", string(text) + "{}", `{"manifest":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,"signature":"x"}`} {
			if _, err := Verify([]byte(bad), open); sandbox.AsError(err) == nil || sandbox.AsError(err).Code != sandbox.CodeManifestInvalid || sandbox.AsError(err).Hint == "" {
				t.Errorf("%.60s: %v", bad, err)
			}
		}
	}
	// A digest that is not the profile's is found out even where it is signed for.
	m := manifest(t, sandbox.FormPinfold)
	m.Tools[0] = bytes.Replace(m.Tools[0], []byte("sha256:"), []byte("sha256:0"), 1)
	signed, err := Seal(m, sign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(encoded(signed), open); err == nil {
		t.Error("a digest of nothing")
	}
}
