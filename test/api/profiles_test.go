package api

import (
	"encoding/json"
	"testing"

	"pinfold/client"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// A key for one profile runs that and nothing else, by HTTP and from Go, and the manifest
// that it gets has the digest that its results have.
func TestKeyForAProfile(t *testing.T) {
	set := profile.Set{}
	for _, p := range []sandbox.Profile{
		{Name: "calc", Language: "sh", Limits: sandbox.Limits{MemoryBytes: 64 << 20}}, {Name: "box", Language: "sh", TTLMS: 60_000},
	} {
		if err := set.Add(profile.Entry{Profile: p}); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, func(s *settings) {
		s.script = func(driver.Plan) fake.Script { return fake.Script{} }
		s.engine.Policy.Profiles = set
	})
	_, secret, err := w.access.CreateConfined(t.Context(), "alpha", "agent", []string{"run"}, 0, nil, []string{"calc"})
	if err != nil {
		t.Fatal(err)
	}
	w.keys["agent"] = secret
	c, err := client.New(w.url, client.WithKey(secret))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	signed, err := c.Manifest(t.Context(), sandbox.FormPinfold)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context(), sandbox.Spec{Profile: "calc", Code: "true"}, client.RunOptions{})
	if err != nil || r.Profile == nil || r.Profile.Name != "calc" {
		t.Fatal(r, err)
	}
	var m sandbox.Manifest
	if err := json.Unmarshal(signed.Manifest, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Profiles) != 1 || m.Profiles[0] != *r.Profile {
		t.Errorf("%+v, and the result has %+v", m.Profiles, r.Profile)
	}
	var result sandbox.Result
	w.must(200, request{key: "agent", method: "POST", path: "/v1/runs", body: `{"profile":"calc","code":"true"}`}).json(t, &result)
	if result.Profile == nil || *result.Profile != *r.Profile {
		t.Errorf("%+v", result.Profile)
	}
	for _, body := range []string{
		`{"language":"sh","code":"true"}`, `{"profile":null,"language":"sh","code":"true"}`, `{"profile":"box","code":"true"}`,
		`{"profile":"calc","code":"true","limits":{"memory_bytes":67108865}}`, `{"profile":"calc","code":"true","network":{"endpoints":[{"host":"a.test"}]}}`,
	} {
		for _, query := range []string{"", "?wait=false"} {
			if got := w.do(request{key: "agent", method: "POST", path: "/v1/runs" + query, body: body}); got.status != 403 || got.code(t).Code != sandbox.CodeProfileDenied || got.code(t).Hint == "" {
				t.Errorf("%s: %d %s", body, got.status, got.body)
			}
		}
	}
	for _, path := range []string{"/v1/sandboxes", "/v1/snapshots"} { // and living sandboxes are not its
		if got := w.do(request{key: "agent", method: "GET", path: path}); got.status != 403 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := w.do(request{key: "agent", method: "POST", path: "/v1/sandboxes", body: `{"profile":"box"}`}); got.status != 403 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := w.do(request{key: "agent", method: "POST", path: "/v1/scan", body: `{"language":"python","code":"print(1)"}`}); got.code(t).Code != sandbox.CodeLanguageMissing {
		t.Errorf("the scan, for which the server itself runs something, comes as far as for others: %d %s", got.status, got.body)
	}
	other, err := client.New(w.url, client.WithKey(w.keys["alpha"]))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b, err := other.Create(t.Context(), sandbox.Create{Profile: "box"})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := b.Info(t.Context()); err != nil || info.Profile == nil || info.Profile.Name != "box" {
		t.Errorf("%+v %v", info, err)
	}
}
