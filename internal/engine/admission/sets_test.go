package admission

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// declared are endpoints as a request declares them.
func declared(t *testing.T, list ...string) (n sandbox.Network) {
	t.Helper()
	for _, text := range list {
		e, err := sandbox.ParseEndpoint(text)
		if err != nil {
			t.Fatal(err)
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	return n
}

// said is a declaration in one line.
func said(n sandbox.Network) string {
	var all []string
	for _, e := range n.Endpoints {
		all = append(all, e.String())
	}
	return strings.Join(all, " | ")
}

// Lists and requests name sets; a tenant has its own list instead of that of all, and a key
// can only narrow it.
func TestTenantsAndKeysHaveLists(t *testing.T) {
	p := Network{
		Sets:    map[string][]sandbox.Endpoint{"indexes": allowed(t, "pypi.test", "GET https://npm.test/**"), "db": allowed(t, "db.test:5432=10.0.0.7"), "wide": allowed(t, "*.w.test")},
		Allow:   allowed(t, "@indexes", "a.test"),
		Tenants: map[string][]sandbox.Endpoint{"team-a": allowed(t, "@db", "@wide", "pypi.test"), "team-b": {}, "team-c": allowed(t, "@gone")},
	}
	for _, c := range []struct {
		tenant    string
		key       []sandbox.Endpoint // nil: it narrows nothing
		asked     []string
		got, code string
	}{
		{"other", nil, []string{"a.test", "@indexes"}, "a.test:443 | pypi.test:443 | GET https://npm.test/**", ""},
		{"other", nil, []string{"@indexes", "pypi.test", "@indexes"}, "pypi.test:443 | GET https://npm.test/**", ""},
		{"other", nil, []string{"GET https://npm.test/x"}, "GET https://npm.test/x", ""},
		{"other", nil, []string{"npm.test"}, "", sandbox.CodeEndpointDenied},
		{"other", nil, []string{"@db"}, "", sandbox.CodeEndpointDenied},
		{"other", nil, []string{"db.test:5432"}, "", sandbox.CodeEndpointDenied},
		{"other", nil, []string{"@gone"}, "", sandbox.CodeSpecInvalid},
		{"team-a", nil, []string{"@db"}, "db.test:5432=10.0.0.7", ""},
		{"team-a", nil, []string{"x.w.test"}, "x.w.test:443", ""},
		{"team-a", nil, []string{"@wide"}, "*.w.test:443", ""},
		{"team-a", nil, []string{"*.x.w.test", "*.w.test:443"}, "*.x.w.test:443 | *.w.test:443", ""},
		{"team-a", nil, []string{"*.w.test:80"}, "", sandbox.CodeEndpointDenied},
		{"team-a", nil, []string{"*.pypi.test"}, "", sandbox.CodeEndpointDenied},
		{"team-a", nil, []string{"a.test"}, "", sandbox.CodeEndpointDenied}, // that was for the others
		{"team-a", nil, []string{"@indexes"}, "", sandbox.CodeEndpointDenied},
		{"team-b", nil, []string{"a.test"}, "", sandbox.CodeEndpointDenied},
		{"team-c", nil, []string{"pypi.test"}, "", sandbox.CodeEndpointDenied},

		{"other", allowed(t, "a.test"), []string{"a.test"}, "a.test:443", ""},
		{"other", allowed(t, "GET https://a.test/x/**"), []string{"GET https://a.test/x/y"}, "GET https://a.test/x/y", ""},
		{"other", allowed(t, "GET https://a.test/x/**"), []string{"a.test"}, "", sandbox.CodeEndpointDenied},
		{"other", allowed(t, "@indexes"), []string{"@indexes"}, "pypi.test:443 | GET https://npm.test/**", ""},
		{"other", allowed(t, "@indexes"), []string{"a.test"}, "", sandbox.CodeEndpointDenied},
		{"other", allowed(t, "db.test:5432"), []string{"db.test:5432"}, "", sandbox.CodeEndpointDenied}, // it widens nothing
		{"other", []sandbox.Endpoint{}, []string{"a.test"}, "", sandbox.CodeEndpointDenied},
		{"team-a", allowed(t, "db.test:5432"), []string{"@db"}, "db.test:5432=10.0.0.7", ""},
	} {
		n, err := p.Endpoints(Narrow(t.Context(), c.key), c.tenant, declared(t, c.asked...))
		switch e := sandbox.AsError(err); {
		case c.code == "" && (err != nil || said(n) != c.got):
			t.Errorf("%s, %v: %s %v", c.tenant, c.asked, said(n), err)
		case c.code != "" && (err == nil || e.Code != c.code || e.Hint == "" || !strings.HasPrefix(e.Field, "network.endpoints[")):
			t.Errorf("%s, %v: %s %+v", c.tenant, c.asked, said(n), e)
		}
	}
	if _, err := p.Endpoints(t.Context(), "other", declared(t, "@gone")); sandbox.AsError(err).Hint != `those that you may declare are "indexes"` {
		t.Errorf("%+v", err)
	}
	if _, err := (Network{Own: true}).Endpoints(t.Context(), "local", declared(t, "@indexes")); sandbox.AsError(err).Field != "network.endpoints[0].set" {
		t.Errorf("%+v", err)
	}
	if _, err := (Network{Own: true}).Endpoints(Narrow(t.Context(), allowed(t, "a.test")), "local", declared(t, "b.test")); sandbox.AsError(err).Code != sandbox.CodeEndpointDenied {
		t.Errorf("a key in a program of its own: %v", err)
	}
}

// Limits on requests hold for what sets have, too.
func TestRequestsOfSetsAreLimited(t *testing.T) {
	p := Network{Sets: map[string][]sandbox.Endpoint{"some": allowed(t, "GET https://a.test"), "all": allowed(t, "b.test")}}
	p.Allow = allowed(t, "@some", "@all")
	for asked, want := range map[string]int64{"@some": 200, "@all": 0} {
		n := declared(t, asked)
		n.Limits.Requests = 200
		got, err := p.Endpoints(t.Context(), "t", n)
		if got.Limits.Requests != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %+v %v", asked, got, err)
		}
		n.Limits.Requests = 0
		if _, err := p.Endpoints(t.Context(), "t", n); err != nil {
			t.Errorf("%s: %v", asked, err)
		}
	}
}

// A wildcard for names of many owners cannot be declared, whoever allows it.
func TestWildcardsOfManyOwners(t *testing.T) {
	for _, p := range []Network{{Own: true}, {Allow: allowed(t, "*.co.uk")}} {
		if _, err := p.Endpoints(t.Context(), "t", declared(t, "a.co.uk")); err != nil {
			t.Error(err)
		}
		if _, err := p.Endpoints(t.Context(), "t", declared(t, "*.a.co.uk")); err != nil {
			t.Error(err)
		}
		if _, err := p.Endpoints(t.Context(), "t", declared(t, "*.co.uk")); sandbox.AsError(err).Field != "network.endpoints[0].host" || sandbox.AsError(err).Code != sandbox.CodeSpecInvalid {
			t.Error(err)
		}
	}
}
