package access

import (
	"fmt"
	"testing"

	"pinfold/sandbox"
)

// A key for some profiles goes with them wherever it is shown, and has no scope by which it
// could do more.
func TestKeysForProfiles(t *testing.T) {
	s, _ := clocked(newShelf())
	for _, scopes := range [][]string{{ScopeRun}, {ScopeRun, ScopeRead}} {
		k, secret, err := s.CreateConfined(t.Context(), "acme", "", scopes, 0, nil, []string{"plots", "Squares_2"})
		if err != nil {
			t.Fatal(err)
		}
		shown, err := s.Authenticate(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		standing, err := s.Standing(t.Context(), k.ID)
		if err != nil || fmt.Sprint(shown.Profiles, standing.Profiles) != "[plots Squares_2] [plots Squares_2]" {
			t.Errorf("%v %v %v", shown, standing, err)
		}
	}
	if _, secret, err := s.Create(t.Context(), "acme", "", Scopes(), 0); err != nil {
		t.Error(err)
	} else if p, err := s.Authenticate(t.Context(), secret); err != nil || p.Profiles != nil {
		t.Errorf("%+v %v", p, err)
	}
	for _, wrong := range []struct {
		field            string
		scopes, profiles []string
	}{
		{"scopes", []string{ScopeRun, ScopeSandbox}, []string{"plots"}},
		{"scopes", []string{ScopeAdmin}, []string{"plots"}},
		{"profiles", []string{ScopeRun}, []string{}},
		{"profiles", []string{ScopeRun}, []string{"a b"}},
		{"profiles", []string{ScopeRun}, make([]string, maxAllow+1)},
	} {
		_, secret, err := s.CreateConfined(t.Context(), "acme", "", wrong.scopes, 0, nil, wrong.profiles)
		if e := sandbox.AsError(err); e == nil || e.Field != wrong.field || e.Hint == "" || secret != "" {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
