package engine_test

import (
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// A secret that can have come into a sandbox is looked for in what is made of it, also where
// that has no endpoint for it any more.
func TestGateKnowsSecretsOfForksAndSnapshots(t *testing.T) {
	const value = "swordfish-12345"
	fixed, err := secret.NewFixed(map[string]sandbox.SetSecret{"door": {Hosts: []string{"a.test"}, Value: value}})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, engine.Options{
		Gates: gates, Secrets: fixed, Snapshots: snapshots.Options{Dir: t.TempDir()}, Policy: admission.Policy{Network: admission.Network{Own: true}},
	}, func(driver.Plan) fake.Script { return fake.Script{} })
	door := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Secret: "door"}}}
	none := sandbox.Network{Mode: sandbox.NetworkNone}
	look := &sandbox.Gate{Secrets: sandbox.GateRedact}
	for name, gate := range map[string]*sandbox.Gate{"with a gate": look, "without": nil} {
		x := s.create(t, sandbox.Create{Gate: gate, Network: door})
		put(t, x, "f", value)
		if want := map[bool]string{true: "[secret door]", false: value}[gate != nil]; read(t, x, "f") != want {
			t.Errorf("%s: %s", name, read(t, x, "f"))
		}
		first := s.create(t, sandbox.Create{Snapshot: snapshot(t, x).ID, Gate: look, Network: none})
		if got := read(t, first, "f"); got != "[secret door]" {
			t.Errorf("%s, of a snapshot: %s", name, got)
		}
		second := s.create(t, sandbox.Create{Snapshot: snapshot(t, first).ID, Gate: look})
		if got := read(t, second, "f"); got != "[secret door]" {
			t.Errorf("%s, of a snapshot of that: %s", name, got)
		}
		if gate == nil {
			continue
		}
		if _, err := x.ChangeNetwork(soon(t), sandbox.NetworkChange{Deny: []string{"a.test"}}); err != nil {
			t.Fatal(err)
		}
		made, err := s.Fork(soon(t), x, sandbox.ForkSandbox{})
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, made[0], "f"); got != "[secret door]" {
			t.Errorf("%s, a fork: %s", name, got)
		}
	}
}
