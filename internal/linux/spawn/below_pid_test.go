//go:build linux

package spawn

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Both ways to ask for the number of a pidfd's process say the same.
func TestPIDOf(t *testing.T) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, ask := range []func(int) (int, error){pidOf, listedPID} {
		if pid, err := ask(fd); pid != os.Getpid() || err != nil {
			t.Errorf("%d, %v, want %d", pid, err, os.Getpid())
		}
	}
}
