package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestGateOfTheConfiguration(t *testing.T) {
	name := filepath.Join(t.TempDir(), "gate.json")
	read := func(text string) (*sandbox.Gate, error) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readGate(name)
	}
	g, err := read(`{"keys": "withhold", "artifacts": {"media_types": []}, "schemas": [{"of": "stdout", "schema": {"type": "object"}}]}`)
	if err != nil || g.Keys != sandbox.GateWithhold || len(g.Schemas) != 1 || g.Artifacts.MediaTypes == nil {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := readGate(""); g != nil || err != nil {
		t.Errorf("%+v, %v", g, err)
	}
	for text, field := range map[string]string{
		`{"keys": "drop"}`: "gate.keys", `{"kexs": "flag"}`: "kexs", `{`: "", `{"schemas": [{"of": "stdout", "schema": {"$ref": "file:///etc/passwd"}}]}`: "gate.schemas[0].schema", `{"context_bytes": 0}`: "context_bytes",
	} {
		_, err := read(text)
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeConfigInvalid || e.Field != "gate.file" || e.Hint == "" || !strings.Contains(e.Message, field) || !strings.Contains(e.Message, name) {
			t.Errorf("%s: %+v", text, e)
		}
	}
	if _, err := readGate(name + ".no"); sandbox.AsError(err) == nil || sandbox.AsError(err).Code != sandbox.CodeConfigInvalid {
		t.Errorf("a file that is not there: %v", err)
	}
}
