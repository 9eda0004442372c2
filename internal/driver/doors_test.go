package driver

import (
	"bytes"
	"slices"
	"testing"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Programs of a sandbox trust its authority, and nobody else where all that they reach is
// read: the lists of everybody are in no such sandbox's memory.
func TestWhomProgramsTrust(t *testing.T) {
	authority := []byte("-----BEGIN CERTIFICATE-----\nno real one\n-----END CERTIFICATE-----\n")
	read, unread := sandbox.Endpoint{Host: "a.test", Paths: []string{"/**"}}, sandbox.Endpoint{Host: "b.test"}
	host := 0
	for _, endpoints := range [][]sandbox.Endpoint{{read}, {read, unread}} {
		plan := Plan{Doors: []Door{{Host: "a.test"}}, Authority: authority}
		plan.Network.Endpoints = endpoints
		files := plan.Inside().Files
		i := slices.IndexFunc(files, func(f image.File) bool { return f.Path == "/etc/pinfold/trust.pem" })
		if i < 0 || !bytes.HasSuffix(files[i].Content, authority) {
			t.Fatalf("%d endpoints: the authority is not trusted", len(endpoints))
		}
		if others := len(bytes.TrimSpace(files[i].Content)) > len(authority); len(endpoints) == 1 && others {
			t.Errorf("others are trusted: %d bytes", len(files[i].Content))
		} else if others {
			host++
		}
		if env := plan.Env(); env["SSL_CERT_FILE"] != files[i].Path {
			t.Errorf("%v", env)
		}
	}
	if host == 0 {
		t.Log("this host trusts nobody, so there is no list to be left out")
	}
	if env := (Plan{}).Env(); len(env) != 0 {
		t.Errorf("without an authority: %v", env)
	}
}

// A machine that is given doors enforces what one does that was made with them.
func TestPlanOfLateDoors(t *testing.T) {
	report := Report{Driver: "x", Level: sandbox.LevelNamespace, Findings: []Finding{{Feature: sandbox.FeatureNetworkNone, Answer: Yes}, {Feature: sandbox.FeatureNetwork, Answer: Yes}}}
	spec := sandbox.Spec{Code: "x"}.WithDefaults().Machine()
	waiting, err := MakePlan(spec, image.Template{}, report, "a")
	if err != nil {
		t.Fatal(err)
	}
	spec.Network = sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test"}}}
	declaring, err := MakePlan(spec, image.Template{}, report, "b")
	if err != nil {
		t.Fatal(err)
	}
	got := waiting.Reaching(declaring)
	if got.ID != "a" || !slices.Equal(got.Posture.Enforced, declaring.Posture.Enforced) || !slices.Equal(got.Doors, declaring.Doors) || len(got.Network.Endpoints) != 1 {
		t.Errorf("%+v, not %+v", got, declaring)
	}
	if !waiting.Enforces(sandbox.FeatureNetworkNone) {
		t.Error("the plan of a machine that waits was changed")
	}
}
