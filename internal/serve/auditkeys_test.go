package serve

import (
	"log/slog"
	"path/filepath"
	"testing"

	"pinfold/internal/access"
	"pinfold/internal/audit"
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
		if err := s.watchKeys(); err != nil {
			t.Fatal(err)
		}
		f()
		s.keys.end()
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
