package admission

import (
	"testing"

	"pinfold/sandbox"
)

// A tenant gets what the operator allows, at the address that the operator says, and
// nothing else; where nothing is said, nothing.
func TestOperatorsNetwork(t *testing.T) {
	var allow []sandbox.Endpoint
	for _, text := range []string{"a.test", "a.test:80", "*.b.test:8443", "db.test:5432=10.0.0.7", "two.test:1=10.0.0.1", "two.test:2=10.0.0.2"} {
		e, err := sandbox.ParseAllowed(text)
		if err != nil {
			t.Fatal(err)
		}
		allow = append(allow, e)
	}
	for _, c := range []struct {
		asked, got, field string // got "": refused, at that field
	}{
		{"a.test:80,443", "a.test:80,443", ""},
		{"A.TEST.", "a.test:443", ""},
		{"x.b.test:8443", "x.b.test:8443", ""},
		{"db.test:5432", "db.test:5432=10.0.0.7", ""},
		{"db.test:5432=10.0.0.7", "db.test:5432=10.0.0.7", ""},
		{"a.test:81", "", "network.endpoints[0].host"},
		{"b.test:8443", "", "network.endpoints[0].host"},
		{"evilb.test:8443", "", "network.endpoints[0].host"},
		{"c.test", "", "network.endpoints[0].host"},
		{"a.test=127.0.0.1", "", "network.endpoints[0].address"},
		{"db.test:5432=127.0.0.1", "", "network.endpoints[0].address"},
		{"two.test:1,2", "", "network.endpoints[0].ports"},
	} {
		e, err := sandbox.ParseEndpoint(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		n := sandbox.Network{Endpoints: []sandbox.Endpoint{e}}
		got, err := Network{Allow: allow}.Endpoints(n)
		if c.got == "" && (err == nil || sandbox.AsError(err).Field != c.field || sandbox.AsError(err).Code != sandbox.CodeEndpointDenied || sandbox.AsError(err).Hint == "") {
			t.Errorf("%s: %v %v", c.asked, got, err)
		}
		if c.got != "" && (err != nil || got.Endpoints[0].String() != c.got) {
			t.Errorf("%s: %v %v", c.asked, got, err)
		}
		if _, err := (Network{}).Endpoints(n); sandbox.AsError(err).Code != sandbox.CodeEndpointDenied {
			t.Errorf("%s is allowed by nobody: %v", c.asked, err)
		}
		if got, err := (Network{Own: true}).Endpoints(n); err != nil || got.Endpoints[0].Address != e.Address {
			t.Errorf("%s, by the operator: %v %v", c.asked, got, err)
		}
	}
	for _, p := range []Network{{}, {Allow: allow}, {Own: true}} {
		if got, err := p.Endpoints(sandbox.Network{}); err != nil || !got.None() {
			t.Errorf("no network: %v %v", got, err)
		}
	}
}

func TestAllowedEndpoints(t *testing.T) {
	for _, text := range []string{"*.test", "*", "*.a.test=10.0.0.1", "a.test:0", "https://a.test/**", "GET https://a.test", "a b", "10.0.0.1:80", "a.test=nowhere"} {
		if e, err := sandbox.ParseAllowed(text); err == nil {
			t.Errorf("%s is %v", text, e)
		}
	}
}
