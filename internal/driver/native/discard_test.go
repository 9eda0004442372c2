//go:build linux

package native

import (
	"path/filepath"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Nobody reads the counters of a machine that is discarded, so what was read
// before stays. The control is one that is not: its agent has worked meanwhile.
func TestDiscard(t *testing.T) {
	d := newDriver(t, filepath.Join(t.TempDir(), "state"))
	for _, discard := range []bool{true, false} {
		plan := planFor(t, d, "discard")
		m, err := d.Create(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		before := usageOf(t, m)
		conn, err := m.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g, err := guest.New(t.Context(), conn, wire.Hello{
			Version: wire.Version, UID: sandbox.UID, GID: sandbox.GID, SwitchUser: plan.SwitchUser, Home: sandbox.Home,
		})
		if err != nil {
			t.Fatal(err)
		}
		if discard {
			m.Abilities().Discarder.Discard()
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = g.Close()
		if after := m.Death().Usage; (after.CPUNanos == before.CPUNanos) != discard {
			t.Errorf("discarded: %v; CPU time before %d, after %d", discard, before.CPUNanos, after.CPUNanos)
		}
		if death := m.Death(); death.Kind != driver.DeathDestroyed {
			t.Errorf("discarded: %v; death %+v", discard, death)
		}
	}
}
