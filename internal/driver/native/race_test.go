//go:build linux

package native

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pinfold/internal/image/imagetest"
)

// A sandbox that changes its user makes the memory that it shares with the host
// process undumpable for a moment, in which another one was refused its own
// /proc/self/timens_offsets: one of some thousand creations failed.
func TestCreateWhileAnotherChangesItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's sandboxes do not change their user")
	}
	d := newDriver(t, filepath.Join(t.TempDir(), "state"))
	report, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
				return
			default:
				_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for i := range 50 {
		if err := once(t.Context(), d, imagetest.Host(t), report, fmt.Sprintf("dumpable-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
}
