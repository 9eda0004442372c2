package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pinfold/internal/access"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// The result of a run that has just ended is kept where there is room for its
// answer, and else let go: it is recorded.
func TestResultsWithoutRoomAreLetGo(t *testing.T) {
	s := newServer(Options{Engine: engine.New(engine.Options{})}) // it has no records
	result := &sandbox.Result{ID: "run_x", Stdout: strings.Repeat("\x01", 9<<20)}
	asked := func() *call {
		c := &call{server: s, r: httptest.NewRequest(http.MethodPost, "/v1/runs", nil), who: access.Principal{Tenant: "t"}}
		t.Cleanup(c.holdAnswer())
		return c
	}
	first, second := asked(), asked()
	if got, err := first.hold(result); got != result || err != nil || s.answers.used < 7*9<<20 {
		t.Fatalf("%v, %d are held", err, s.answers.used)
	}
	if got, err := second.hold(result); err != nil || got != result {
		t.Fatal(err)
	}
	if got, err := asked().hold(result); got != nil || sandbox.AsError(err).Code != sandbox.CodeNotFound {
		t.Errorf("%v", err)
	}
	second.room.giveBack()
	if _, err := asked().hold(result); err != nil {
		t.Error(err)
	}
}

// A key that was narrowed says to what; one with no list may declare what its tenant may.
func TestWhoAmIHasTheKeysList(t *testing.T) {
	allowed, err := sandbox.ParseAllowed("GET https://a.test/x/**")
	if err != nil {
		t.Fatal(err)
	}
	for want, allow := range map[string][]sandbox.Endpoint{
		`"allow":["GET https://a.test/x/**"]`: {allowed}, `"allow":[]`: {}, `"scopes":[]}`: nil,
	} {
		s, w := newServer(Options{Engine: engine.New(engine.Options{})}), httptest.NewRecorder()
		c := &call{server: s, w: &answer{ResponseWriter: w, rc: http.NewResponseController(w)}, r: httptest.NewRequest(http.MethodGet, "/v1/whoami", nil), who: access.Principal{Tenant: "t", Allow: allow}}
		for _, rt := range s.hostRoutes() {
			if rt.id == "whoAmI" {
				err = rt.handle(c)
			}
		}
		if err != nil || !strings.Contains(strings.ReplaceAll(w.Body.String(), " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%v %s, not %s", err, w.Body, want)
		}
	}
}
