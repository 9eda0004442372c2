package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

func parsed(t *testing.T, texts []string) (all []sandbox.Endpoint) {
	t.Helper()
	for _, text := range texts {
		e, err := sandbox.ParseAllowed(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// What two declarations have in common is what both allow, and nothing that one of them
// does not.
func TestCommon(t *testing.T) {
	allowed := func(texts ...string) []sandbox.Endpoint { return parsed(t, texts) }
	for _, c := range []struct {
		asked string
		list  []string
		want  []string
	}{
		{"api.example.com", []string{"api.example.com"}, []string{"api.example.com:443"}},
		{"api.example.com", []string{"*.example.com"}, []string{"api.example.com:443"}},
		{"*.example.com", []string{"api.example.com", "other.org"}, []string{"api.example.com:443"}},
		{"*.example.com", []string{"*.api.example.com"}, []string{"*.api.example.com:443"}},
		{"api.example.com", []string{"other.org"}, nil},
		{"api.example.com:8443", []string{"api.example.com"}, nil},
		{"api.example.com", []string{"GET https://api.example.com/v1/**"}, []string{"GET https://api.example.com/v1/**"}},
		{"GET,POST https://api.example.com/v1/**", []string{"GET https://api.example.com/**"}, []string{"GET https://api.example.com/v1/**"}},
		{"POST https://api.example.com/v1/**", []string{"GET https://api.example.com/**"}, nil},
		{"https://api.example.com/v1/*", []string{"https://api.example.com/v2/*"}, nil},
		{"https://api.example.com/**", []string{"https://api.example.com/a", "https://api.example.com/b"}, []string{"https://api.example.com/a", "https://api.example.com/b"}},
	} {
		var got []string
		for _, e := range allowed(c.asked) {
			for _, b := range common(e, allowed(c.list...)) {
				got = append(got, b.Words()...)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s and %v: %v, not %v", c.asked, c.list, got, c.want)
			continue
		}
		for i := range got {
			w := allowed(c.want[i])[0].Words()[0]
			if got[i] != w {
				t.Errorf("%s and %v: %v, not %v", c.asked, c.list, got, c.want)
			}
		}
	}
}

// Neither who is asked nor who reads the result learns where the operator's names are.
func TestWordsHaveNoAddresses(t *testing.T) {
	where, err := sandbox.ParseAllowed("db.test:5432=10.0.0.7")
	if err != nil {
		t.Fatal(err)
	}
	n := sandbox.Network{Endpoints: []sandbox.Endpoint{where}}
	if words := Words(n); !slices.Equal(words, []string{"db.test:5432"}) || where.Words()[0] != "db.test:5432=10.0.0.7" {
		t.Errorf("%v", words)
	}
	p, err := New(sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "shut", Then: sandbox.PolicyThen{Network: sandbox.PolicyNone}}}})
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Judge(Facts{}, Asked{Network: n}).Result.Rules[0].Changes; len(c) != 1 || c[0].From != "db.test:5432" || c[0].To != sandbox.PolicyNone {
		t.Errorf("%+v", c)
	}
}

// What a rule leaves of a network lets nothing pass that the whole did not, at any name, also
// where a wildcard stays and a more narrow declaration goes.
func TestNarrowingDoesNotWiden(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	endpoints := func(texts ...string) []sandbox.Endpoint {
		n, err := sandbox.Network{Endpoints: parsed(t, texts)}.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		return n.Endpoints
	}
	passes := func(declared []sandbox.Endpoint, name string, port int, method, path string) bool {
		host := egress.StandsFor(name, declared)
		return egress.WithinDeclared(sandbox.Endpoint{Host: host, Ports: []int{port}, Methods: []string{method}, Paths: []string{path}}, declared)
	}
	check := func(declared, allowed []sandbox.Endpoint) (passed int) {
		left := leave(declared, allowed)
		for _, name := range []string{"x.org", "a.x.org", "b.x.org", "c.b.x.org", "d.b.x.org"} {
			for _, port := range []int{443, 8443} {
				for _, method := range []string{"GET", "POST"} {
					for _, path := range []string{"/v1/a", "/v2/a"} {
						if !passes(left, name, port, method, path) {
							continue
						}
						passed++
						if !passes(declared, name, port, method, path) {
							t.Fatalf("%s %s:%d%s passes by %v, which %v left of %v", method, name, port, path, words(sandbox.Network{Endpoints: left}), words(sandbox.Network{Endpoints: allowed}), words(sandbox.Network{Endpoints: declared}))
						}
					}
				}
			}
		}
		return passed
	}
	if check(endpoints("a.x.org", "*.x.org", "*.x.org:8443"), endpoints("*.x.org:8443")) != 0 {
		t.Error("the wildcard has stayed")
	}
	if n := check(endpoints("a.x.org", "*.x.org", "*.x.org:8443"), endpoints("*.x.org")); n == 0 {
		t.Error("nothing has stayed of what both declare")
	}
	hosts := []string{"x.org", "a.x.org", "c.b.x.org", "*.x.org", "*.b.x.org"}
	some := func(n int) (texts []string) {
		for range 1 + random.IntN(n) {
			host := hosts[random.IntN(len(hosts))]
			texts = append(texts, []string{host, host + ":8443", "https://" + host + "/v1/**", "GET https://" + host + "/**", "POST https://" + host + ":8443/v2/*"}[random.IntN(5)])
		}
		return texts
	}
	passed := 0
	for range 3000 {
		declared, err := sandbox.Network{Endpoints: parsed(t, some(5))}.Canonical()
		if err != nil { // read and unread at once
			continue
		}
		allowed, err := sandbox.Network{Endpoints: parsed(t, some(3))}.Canonical()
		if err == nil {
			passed += check(declared.Endpoints, allowed.Endpoints)
		}
	}
	if passed < 1000 {
		t.Errorf("%d requests have passed", passed)
	}
}
