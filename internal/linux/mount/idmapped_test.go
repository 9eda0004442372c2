//go:build linux

package mount

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Nothing but the view is left of making one: no process and no descriptor.
func TestIDMappedLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root translates ids")
	}
	dir := t.TempDir()
	view := func() {
		t.Helper()
		tree, err := IDMapped(dir, ReadOnly, Owner{0, 0}, Owner{70_000, 70_000})
		if errors.Is(err, ErrNotMappable) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
	}
	view() // the poller is there now
	before := descriptors(t)
	view()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and %d were before", after, before)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("a child is left: wait4 says %d, %v", pid, err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
