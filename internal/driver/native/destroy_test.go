//go:build linux

package native

import (
	"path/filepath"
	"testing"

	"pinfold/internal/guest"
	"pinfold/test/freezer"
	"pinfold/test/ledger"
)

// A sandbox that does not end in time is reported: Destroy says so, and a
// process that cannot wait leaves it to the next one, which finds it as it finds
// what a dead one has left. Here a freezer keeps the sandbox from ending.
func TestDestroyInVain(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d, next := newDriver(t, state), newDriver(t, state)
	plan := planFor(t, d, "in-vain")
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	_, g, err := startIn(t.Context(), m, plan, guest.Command{Args: []string{"/bin/sleep", "600"}}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	thaw := freezer.Freeze(t, m.(*machine).child.PID)
	if err := m.Destroy(t.Context()); err == nil {
		t.Fatal("Destroy says that nothing is left, while the sandbox's first process is frozen")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	thaw()
	found, err := next.Leftovers(t.Context())
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
	if kinds["cgroup"] != 1 || kinds["lock"] != 1 {
		t.Errorf("the next process found %+v", found)
	}
	// What the driver that could not wait still holds is its own, until it ends.
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
