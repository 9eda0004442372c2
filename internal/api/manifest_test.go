package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"pinfold/internal/access"
	"pinfold/internal/audit"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// keysOf are principals by their keys.
type keysOf map[string]access.Principal

func (k keysOf) Authenticate(_ context.Context, presented string) (access.Principal, error) {
	p, ok := k[presented]
	if !ok {
		return p, &sandbox.Error{Code: sandbox.CodeUnauthorized, Message: "unknown"}
	}
	return p, nil
}

func (k keysOf) Standing(ctx context.Context, id string) (access.Principal, error) {
	return k.Authenticate(ctx, id)
}

// Each key gets the profiles that it may use, in the form that is asked for, and signed.
func TestManifest(t *testing.T) {
	set := profile.Set{}
	for _, e := range []profile.Entry{
		{Profile: sandbox.Profile{Name: "plots", Language: "python", Description: "<b>Charts</b> & more"}},
		{Profile: sandbox.Profile{Name: "squares", Language: "sh"}},
		{Profile: sandbox.Profile{Name: "theirs", Language: "sh"}, Tenants: []string{"beta"}},
	} {
		if err := set.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	signer, err := audit.OpenSigner(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	key, err := audit.ParseKey(signer.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	run := []string{access.ScopeRun}
	keys := keysOf{"alpha": {Tenant: "alpha", Scopes: run}, "beta": {Tenant: "beta", Scopes: run}, "narrow": {Tenant: "alpha", Scopes: run, Profiles: []string{"squares", "theirs"}}}
	e := engine.New(engine.Options{Drivers: []driver.Driver{fake.New(fake.Options{})}, Policy: admission.Policy{Profiles: set}})
	ask := func(o Options, key, form string) *httptest.ResponseRecorder {
		o.Engine, o.Access = e, keys
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/manifest"+form, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		newServer(o).handler().ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		key, form string
		names     string
	}{
		{"alpha", "", `["plots","squares"]`},
		{"beta", "?form=pinfold", `["plots","squares","theirs"]`},
		{"narrow", "?form=openai", `["squares"]`},
		{"alpha", "?form=anthropic", `["plots","squares"]`},
		{"alpha", "?form=mcp", `["plots","squares"]`},
	} {
		w := ask(Options{Signer: signer}, c.key, c.form)
		m, err := profile.Verify(w.Body.Bytes(), key.Open)
		var names []string
		for _, p := range m.Profiles {
			names = append(names, p.Name)
		}
		if got, _ := json.Marshal(names); w.Code != http.StatusOK || err != nil || string(got) != c.names {
			t.Errorf("%v: %d %s %v", c, w.Code, got, err)
		}
	}
	if w := ask(Options{}, "alpha", ""); w.Code != http.StatusOK {
		t.Errorf("without a signer: %d %s", w.Code, w.Body)
	} else if _, err := profile.Verify(w.Body.Bytes(), key.Open); err == nil {
		t.Error("what nobody has signed verifies")
	}
	if w := ask(Options{}, "alpha", "?form=xml"); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(Options{}, "nobody", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
