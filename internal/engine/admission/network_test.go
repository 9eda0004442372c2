package admission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// allowed is an operator's list, or a key's.
func allowed(t *testing.T, list ...string) []sandbox.Endpoint {
	t.Helper()
	all := []sandbox.Endpoint{}
	for _, text := range list {
		e, err := sandbox.ParseAllowed(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// A tenant gets what the operator allows, at the address that the operator says, and
// nothing else; where nothing is said, nothing.
func TestOperatorsNetwork(t *testing.T) {
	allow := allowed(t,
		"a.test", "a.test:80", "*.b.test:8443", "db.test:5432=10.0.0.7", "two.test:1=10.0.0.1", "two.test:2=10.0.0.2",
		"GET,HEAD https://rules.test/repos/**", "POST https://rules.test/repos/*/issues", "GET https://rules.test:8443",
		"GET https://many.test=10.0.0.1/a/**", "GET https://many.test=10.0.0.2/b/**", "GET https://*.below.test/x/**",
	)
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
		{"GET https://a.test/x", "GET https://a.test/x", ""},
		{"GET https://rules.test/repos/**", "GET https://rules.test/repos/**", ""},
		{"GET,HEAD https://rules.test/repos/x", "GET,HEAD https://rules.test/repos/x", ""},
		{"POST https://rules.test/repos/x/issues", "POST https://rules.test/repos/x/issues", ""},
		{"GET https://rules.test:8443/any", "GET https://rules.test:8443/any", ""},
		{"GET https://many.test/b/c", "GET https://many.test=10.0.0.2/b/c", ""},
		{"GET https://z.below.test/x/y", "GET https://z.below.test/x/y", ""},
		{"*.b.test:8443", "*.b.test:8443", ""},
		{"*.a.b.test:8443", "*.a.b.test:8443", ""},
		{"GET https://*.below.test/x/y", "GET https://*.below.test/x/y", ""},
		{"*.a.test", "", "network.endpoints[0].host"},
		{"*.evilb.test:8443", "", "network.endpoints[0].host"},
		{"*.below.test", "", "network.endpoints[0].methods"},
		{"rules.test", "", "network.endpoints[0].methods"},
		{"https://rules.test/repos/x", "", "network.endpoints[0].methods"},
		{"DELETE https://rules.test/repos/x", "", "network.endpoints[0].methods"},
		{"GET https://rules.test", "", "network.endpoints[0].paths"},
		{"GET https://rules.test/**", "", "network.endpoints[0].paths"},
		{"GET https://rules.test/repos/*", "", "network.endpoints[0].paths"},
		{"POST https://rules.test/repos/**", "", "network.endpoints[0].paths"},
		{"GET https://rules.test:443,8443/any", "", "network.endpoints[0].paths"},
		{"GET https://z.below.test/y", "", "network.endpoints[0].paths"},
		{"GET https://rules.test:444/repos/x", "", "network.endpoints[0].host"},
	} {
		e, err := sandbox.ParseEndpoint(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		n := sandbox.Network{Endpoints: []sandbox.Endpoint{e}}
		got, err := Network{Allow: allow}.Endpoints(t.Context(), "team-a", n)
		if c.got == "" && (err == nil || sandbox.AsError(err).Field != c.field || sandbox.AsError(err).Code != sandbox.CodeEndpointDenied || sandbox.AsError(err).Hint == "") {
			t.Errorf("%s: %v %v", c.asked, got, err)
		}
		if c.got != "" && (err != nil || got.Endpoints[0].String() != c.got) {
			t.Errorf("%s: %v %v", c.asked, got, err)
		}
		if _, err := (Network{}).Endpoints(t.Context(), "team-a", n); sandbox.AsError(err).Code != sandbox.CodeEndpointDenied {
			t.Errorf("%s is allowed by nobody: %v", c.asked, err)
		}
		if got, err := (Network{Own: true}).Endpoints(t.Context(), "team-a", n); err != nil || got.Endpoints[0].Address != e.Address {
			t.Errorf("%s, by the operator: %v %v", c.asked, got, err)
		}
	}
	two := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "two.test", Ports: []int{1}, Methods: []string{"GET"}}, {Host: "two.test", Ports: []int{2}, Methods: []string{"POST"}}}}
	if got, err := (Network{Allow: allow}).Endpoints(t.Context(), "team-a", two); sandbox.AsError(err).Field != "network.endpoints[1].host" {
		t.Errorf("one host at two addresses: %v %v", got, err)
	}
	for _, p := range []Network{{}, {Allow: allow}, {Own: true}} {
		if got, err := p.Endpoints(t.Context(), "team-a", sandbox.Network{}); err != nil || !got.None() {
			t.Errorf("no network: %v %v", got, err)
		}
	}
}

func TestAllowedEndpoints(t *testing.T) {
	for _, text := range []string{"*.test", "*", "*.a.test=10.0.0.1", "a.test:0", "https://a.test/../b", "get https://a.test", "a b", "10.0.0.1:80", "a.test=nowhere"} {
		if e, err := sandbox.ParseAllowed(text); err == nil {
			t.Errorf("%s is %v", text, e)
		}
	}
}

// What is refused for its methods or paths is refused with what would be right.
func TestWhatIsTooWideIsToldWhatWouldBeRight(t *testing.T) {
	p := Network{Allow: allowed(t, "GET https://*.a.test/repos/**")}
	_, err := p.Endpoints(t.Context(), "team-a", sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "x.a.test"}}})
	fix, ok := sandbox.AsError(err).Advice.Find(sandbox.FixSet)
	var right sandbox.Network
	if !ok || fix.Name != "network" || json.Unmarshal(fix.Value, &right) != nil {
		t.Fatalf("%+v", err)
	}
	if n, err := p.Endpoints(t.Context(), "team-a", right); err != nil || n.Endpoints[0].String() != "GET https://x.a.test/repos/**" {
		t.Errorf("%v %v", n, err)
	}
}

// A refusal says what the operator could add, and where: not more than was asked for, and in the
// tenant's own list where it has one.
func TestRefusalsSayWhatWouldAllow(t *testing.T) {
	policy := Network{Allow: allowed(t, "a.test"), Tenants: map[string][]sandbox.Endpoint{"team-a": allowed(t, "a.test")}}
	for _, c := range []struct{ tenant, asked, want string }{
		{"other", "b.test", `"b.test:443" to network.allow in`},
		{"team-a", "b.test:80", `"b.test:80" to network.tenants.team-a in`},
		{"other", "GET https://b.test/x/**", `"GET https://b.test/x/**" to network.allow in`},
	} {
		_, err := policy.Endpoints(t.Context(), c.tenant, network(t, c.asked))
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeEndpointDenied || !strings.Contains(e.Hint, c.want) {
			t.Errorf("%s: %+v", c.asked, e)
		}
	}
	all := sandbox.Endpoint{Host: "b.test", Ports: []int{443}}
	for i := range sandbox.MaxPaths {
		all.Paths = append(all.Paths, fmt.Sprintf("/%d", i))
	}
	_, err := policy.Endpoints(t.Context(), "other", sandbox.Network{Endpoints: []sandbox.Endpoint{all}})
	if e := sandbox.AsError(err); e == nil || strings.Count(e.Hint, "https://") != maxSaid {
		t.Errorf("%+v", e)
	}
}
