package serve

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"pinfold/internal/access"
	"pinfold/internal/audit"
	"pinfold/internal/config"
	"pinfold/internal/policy"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

// Keys that are made and revoked are recorded, each once, also those that were while no
// server ran.
func TestChangesOfKeysAreRecorded(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	keys := access.NewService(access.Options{Store: st})
	var made []access.Key
	create := func(tenant string) {
		k, _, err := keys.Create(t.Context(), tenant, "", access.Scopes(), 0)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, k)
	}
	revoke := func(k access.Key) {
		if _, err := keys.Revoke(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
	}
	type change struct {
		kind   sandbox.AuditKind
		tenant string
		id     string
	}
	var got []change
	life := func(f func()) {
		l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, audit.Dir)})
		if err != nil {
			t.Fatal(err)
		}
		s := &server{access: keys, audit: l, log: slog.New(slog.DiscardHandler)}
		if err := s.watchChanges(); err != nil {
			t.Fatal(err)
		}
		f()
		s.changes.end()
		all, _, err := l.List(audit.Filter{}, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, e := range all {
			got = append(got, change{e.Kind, e.Tenant, e.ID})
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	life(func() { create("b") })
	revoke(made[0])
	create("c")
	life(func() {})
	life(func() { revoke(made[2]) })
	want := map[change]bool{
		{sandbox.AuditKeyCreated, "a", made[0].ID}: true, {sandbox.AuditKeyCreated, "b", made[1].ID}: true, {sandbox.AuditKeyCreated, "c", made[2].ID}: true,
		{sandbox.AuditKeyRevoked, "a", made[0].ID}: true, {sandbox.AuditKeyRevoked, "c", made[2].ID}: true,
	}
	if len(got) != len(want) {
		t.Errorf("%d changes: %+v", len(got), got)
	}
	for _, c := range got {
		if !want[c] {
			t.Errorf("%+v", c)
		}
	}
}

// A policy is recorded when it begins to hold, and when it does not any more; what held
// before and holds again is recorded once.
func TestPolicyChangesAreRecorded(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	keys := access.NewService(access.Options{Store: st})
	none := (*policy.Policy)(nil)
	ruled := func(rule string) *policy.Policy {
		p, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: rule, Then: sandbox.PolicyThen{Refuse: "no"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, two := ruled("one"), ruled("two")
	var got []string
	for _, lives := range [][]*policy.Policy{{none}, {one}, {one, one}, {two}, {none}, {none}, {one}} {
		l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, audit.Dir)})
		if err != nil {
			t.Fatal(err)
		}
		s := &server{access: keys, audit: l, log: slog.New(slog.DiscardHandler)}
		s.policy.Store(lives[0])
		if err := s.watchChanges(); err != nil {
			t.Fatal(err)
		}
		s.policy.Store(lives[len(lives)-1])
		s.changes.end()
		all, _, err := l.List(audit.Filter{}, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, e := range all {
			what := string(e.Kind)
			if e.Policy != nil {
				what += " " + e.Policy.Digest
			}
			got = append(got, what)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"policy_set " + one.Digest(), "policy_set " + two.Digest(), "policy_removed", "policy_set " + one.Digest()}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// A policy that held only between two looks is recorded all the same.
func TestPolicyOfAMomentIsRecorded(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, audit.Dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &server{access: access.NewService(access.Options{Store: st}), audit: l, log: slog.New(slog.DiscardHandler)}
	if err := s.watchChanges(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, rule := range []string{"one", "two", "one"} {
		c := config.Default()
		c.Policy.Rules = []sandbox.PolicyRule{{ID: rule, Then: sandbox.PolicyThen{Refuse: "no"}}}
		if err := s.setPolicy(c); err != nil {
			t.Fatal(err)
		}
		want = append(want, s.rules().Digest())
	}
	s.changes.end()
	all, _, err := l.List(audit.Filter{Kinds: []sandbox.AuditKind{sandbox.AuditPolicySet}}, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.Policy.Digest)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
