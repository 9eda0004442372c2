package records

import (
	"encoding/json"
	"testing"

	"pinfold/sandbox"
)

// What is recorded of a request is all of it: from the parts comes the same request again.
func TestAskedAgain(t *testing.T) {
	spec := sandbox.Spec{
		Language: "python", Code: "print(1)", Files: []sandbox.File{{Path: "a", ContentBase64: "AP8="}}, Args: []string{"", "b"}, Env: map[string]string{"A": "\x01"}, Stdin: "in",
		Limits: sandbox.Limits{MemoryBytes: 64 << 20}.WithDefaults(), Artifacts: []string{"*.csv"}, Template: "t", Driver: "native", Isolation: "vm", Require: []string{"seccomp"}, Warm: []string{"json"},
		Scan: true, OutputBase64: true, Metadata: map[string]string{"k": "v"}, AllowedImports: []string{}, Gate: &sandbox.Gate{Keys: sandbox.GateFlag},
		Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "example.com", Secret: "s"}}},
	}
	e := RunEvent(&sandbox.Result{})
	e.AddSpec(&spec)
	e.AddAsked(Asked{Spec: spec, Elsewhere: []string{"x"}, MadeWith: map[string]string{"template": "1"}})
	asked, ok, err := AskedAgain(e.Parts)
	want, _ := json.Marshal(spec)
	got, _ := json.Marshal(asked.Spec)
	if err != nil || !ok || string(got) != string(want) || len(asked.Elsewhere) != 1 || asked.MadeWith["template"] != "1" {
		t.Errorf("%v, %t\n%s\n%s", err, ok, got, want)
	}
	if spec.Code == "" || spec.Files == nil {
		t.Error("the request itself was changed")
	}
	if _, ok, err := AskedAgain(map[string][]byte{"code": []byte("x")}); ok || err != nil {
		t.Errorf("of an older log: %t, %v", ok, err)
	}
	if _, _, err := AskedAgain(map[string][]byte{"asked": []byte("{")}); err == nil {
		t.Error("half of it is taken")
	}
}
