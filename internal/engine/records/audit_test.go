package records

import (
	"slices"
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

// What went on with endpoints is recorded of a run and of a sandbox that has ended: how much,
// and which secrets were used.
func TestNetworkUseIsRecorded(t *testing.T) {
	use := &sandbox.NetworkUse{
		Endpoints: []sandbox.EndpointUse{
			{Host: "b.example", Connections: 2, Requests: 3, Secrets: 1, SecretNames: []string{"b"}},
			{Host: "a.example", Connections: 1, Secrets: 2, SecretNames: []string{"a", "b"}},
		},
		Denied: []sandbox.Denial{{Count: 4}, {Count: 5}}, DeniedMore: 6,
	}
	for _, e := range []Event{RunEvent(&sandbox.Result{Network: use}), SandboxEvent(sandbox.AuditSandboxEnded, sandbox.Info{Network: use})} {
		n := e.Entry.Network
		if n == nil || n.Connections != 3 || n.Requests != 3 || n.Denied != 15 || !slices.Equal(n.Secrets, []string{"a", "b"}) || len(e.Parts["network_use"]) == 0 {
			t.Errorf("%s: %+v", e.Entry.Kind, n)
		}
	}
	if e := RunEvent(&sandbox.Result{}); e.Entry.Network != nil || e.Parts["network_use"] != nil {
		t.Errorf("%+v", e.Entry)
	}
}
