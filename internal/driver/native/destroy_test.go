//go:build linux

package native

import (
	"path/filepath"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/test/freezer"
	"pinfold/test/ledger"
)

// A sandbox that does not end in time is reported: Destroy says so, and a
// process that cannot wait leaves it to the next one, which finds it as it finds
// what a dead one has left. Here a freezer keeps the sandbox from ending.
func TestDestroyInVain(t *testing.T) {
	d, next, m, thaw := undestroyed(t)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	thaw()
	kinds := leftovers(t, next)
	if kinds["cgroup"] != 1 || kinds["lock"] != 1 {
		t.Errorf("the next process found %v", kinds)
	}
	// What the driver that could not wait still holds is its own, until it ends.
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// What can be destroyed by the time that its process ends leaves nothing to the next one.
func TestCloseDestroysAgain(t *testing.T) {
	d, next, _, thaw := undestroyed(t)
	thaw()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if kinds := leftovers(t, next); len(kinds) > 0 {
		t.Errorf("the next process found %v", kinds)
	}
}

// undestroyed returns a driver and its machine, which is frozen and could not be destroyed, and
// another driver of the same state.
func undestroyed(t *testing.T) (d, next *Driver, m driver.Machine, thaw func()) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d, next = newDriver(t, state), newDriver(t, state)
	plan := planFor(t, d, "in-vain")
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	_, g, err := startIn(t.Context(), m, plan, guest.Command{Args: []string{"/bin/sleep", "600"}}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	thaw = freezer.Freeze(t, m.(*machine).child.PID)
	if err := m.Destroy(t.Context()); err == nil {
		t.Fatal("Destroy says that nothing is left, while the sandbox's first process is frozen")
	}
	return d, next, m, thaw
}

// leftovers counts what a driver finds and removes, by kind.
func leftovers(t *testing.T, d *Driver) map[string]int {
	found, err := d.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, l := range found {
		kinds[l.Kind]++
		if l.Err != nil {
			t.Errorf("%s %s could not be removed: %v", l.Kind, l.Name, l.Err)
		}
	}
	return kinds
}
