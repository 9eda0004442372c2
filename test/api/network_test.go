package api

import (
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// What a request may declare is decided by the key that it comes with, and its tenant: runs
// and living sandboxes alike, and also where it names a set.
func TestWhatAKeyMayDeclare(t *testing.T) {
	list := func(texts ...string) (all []sandbox.Endpoint) {
		for _, text := range texts {
			e, err := sandbox.ParseAllowed(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		return all
	}
	w := newWorld(t, func(s *settings) {
		s.script = func(driver.Plan) fake.Script { return fake.Script{} }
		s.engine.Policy.Network = admission.Network{
			Sets: map[string][]sandbox.Endpoint{"indexes": list("pypi.test")}, Allow: list("@indexes", "a.test"),
			Tenants: map[string][]sandbox.Endpoint{"beta": list("b.test")},
		}
	})
	for name, allow := range map[string][]string{"narrow": {"@indexes"}, "shut": {}} {
		_, secret, err := w.access.CreateNarrow(t.Context(), "alpha", name, []string{"run", "sandbox"}, 0, allow)
		if err != nil {
			t.Fatal(err)
		}
		w.keys[name] = secret
	}
	const set, pypi, a, b = `{"set":"indexes"}`, `{"host":"pypi.test"}`, `{"host":"a.test"}`, `{"host":"b.test"}`
	for _, c := range []struct {
		key, endpoint string
		passes        bool
	}{
		{"alpha", set, true},
		{"alpha", a, true},
		{"alpha", b, false},
		{"beta", set, false},
		{"beta", a, false},
		{"beta", b, true},
		{"narrow", set, true},
		{"narrow", pypi, true},
		{"narrow", a, false},
		{"shut", set, false},
		{"shut", a, false},
	} {
		network := `"network":{"endpoints":[` + c.endpoint + `]}`
		for path, body := range map[string]string{"/v1/runs": `{"language":"shell","code":"true",` + network + `}`, "/v1/sandboxes": `{` + network + `}`} {
			got := w.do(request{key: c.key, method: "POST", path: path, body: body})
			switch {
			case c.passes && got.status >= 300:
				t.Errorf("%s, %s, %s: %d %s", path, c.key, c.endpoint, got.status, got.body)
			case !c.passes && got.code(t).Code != sandbox.CodeEndpointDenied:
				t.Errorf("%s, %s, %s: %d %s", path, c.key, c.endpoint, got.status, got.body)
			}
		}
	}
	if got := w.do(request{key: "shut", method: "POST", path: "/v1/runs", body: `{"language":"shell","code":"true"}`}); got.status != 200 {
		t.Errorf("without endpoints: %d %s", got.status, got.body)
	}
	if got := w.do(request{key: "alpha", method: "POST", path: "/v1/runs", body: `{"language":"shell","code":"true","network":{"endpoints":[{"set":"indexes","host":"a.test"}]}}`}); got.code(t).Field != "network.endpoints[0]" {
		t.Errorf("%d %s", got.status, got.body)
	}
}
