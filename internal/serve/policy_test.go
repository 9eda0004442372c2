package serve

import (
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"pinfold/internal/config"
	"pinfold/sandbox"
)

// The policy of the configuration holds, a new one is taken over while the server runs, one
// that is wrong is not, and a server with a wrong one does not start.
func TestPolicyOfTheConfiguration(t *testing.T) {
	rule := func(id string) []sandbox.PolicyRule {
		return []sandbox.PolicyRule{{ID: id, Then: sandbox.PolicyThen{Refuse: "closed"}}}
	}
	c := configure(t)
	c.Policy.Rules = rule("first")
	fresh, wrong := *c, *c
	fresh.Policy.Rules = rule("second")
	wrong.Policy.Rules = rule("NO ID")
	answers := make(chan *config.Config, 1)
	r := start(t, c, Options{Reload: func() (*config.Config, error) { return <-answers, nil }})
	refusedBy := func(id string) {
		t.Helper()
		if status, body := r.ask("POST", "/v1/sandboxes", "{}"); status != http.StatusForbidden || !strings.Contains(body, sandbox.CodePolicyRefused) || !strings.Contains(body, id) {
			t.Errorf("%d %s", status, body)
		}
	}
	refusedBy("first")
	answers <- &wrong
	r.signals <- syscall.SIGHUP
	r.expectLog("was not taken over")
	refusedBy("first")
	answers <- &fresh
	r.signals <- syscall.SIGHUP
	r.expectLog("was read again")
	refusedBy("second")
	if strings.Contains(r.log.String(), "need a restart") {
		t.Error("a new policy needs a restart")
	}
	s := &server{log: slog.New(slog.DiscardHandler)}
	if err := s.setPolicy(&wrong); err == nil || s.rules() != nil {
		t.Errorf("%v", err)
	}
}
