package records

import (
	"testing"

	"pinfold/sandbox"
)

// What a sandbox may, of what it was asked for, is among what is recorded of its making.
func TestCreatedSandboxSaysWhatItMay(t *testing.T) {
	info := sandbox.Info{ID: "sbx_a", Snapshot: "snp_a"}
	e := SandboxEvent(sandbox.AuditSandboxCreated, info)
	e.AddCreate(sandbox.Create{
		Require: []string{"network:none"}, Env: map[string]string{"K": "v"}, Mounts: []sandbox.Mount{{Host: "/data"}},
		Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.example"}}},
	})
	for _, name := range []string{"env", "mounts", "network"} {
		if len(e.Parts[name]) == 0 {
			t.Errorf("no %s", name)
		}
	}
	if e.Entry.Origin != "snp_a" || len(e.Entry.Isolation.Required) != 1 {
		t.Errorf("%+v", e.Entry)
	}
	e = SandboxEvent(sandbox.AuditSandboxCreated, info)
	e.AddCreate(sandbox.Create{})
	if len(e.Parts) != 2 { // limits and isolation
		t.Errorf("%q", e.Parts)
	}
}
