//go:build linux

package native

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/test/ledger"
)

// A sandbox that does not end in time is reported: Destroy says so, and a
// process that cannot wait leaves it to the next one, which finds it as it finds
// what a dead one has left. Here a freezer keeps the sandbox from ending.
func TestDestroyInVain(t *testing.T) {
	freezer := "/sys/fs/cgroup/freezer/pinfold-test-" + strconv.Itoa(os.Getpid())
	if err := os.Mkdir(freezer, 0o755); err != nil {
		t.Skipf("needs the freezer of cgroup version 1: %v", err)
	}
	put := func(file, value string) {
		if err := os.WriteFile(filepath.Join(freezer, file), []byte(value), 0); err != nil {
			t.Error(err)
		}
	}
	defer func() {
		put("freezer.state", "THAWED")
		for os.Remove(freezer) != nil {
			time.Sleep(time.Millisecond)
		}
	}()
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
	put("cgroup.procs", strconv.Itoa(m.(*machine).child.PID))
	put("freezer.state", "FROZEN")
	for state := ""; state != "FROZEN\n"; {
		b, err := os.ReadFile(filepath.Join(freezer, "freezer.state"))
		if err != nil {
			t.Fatal(err)
		}
		state = string(b)
	}
	if err := m.Destroy(t.Context()); err == nil {
		t.Fatal("Destroy says that nothing is left, while the sandbox's first process is frozen")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	put("freezer.state", "THAWED")
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
