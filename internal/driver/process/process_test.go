//go:build linux

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
)

// newDriver opens a driver for one test. dir is a directory that others can pass through;
// level the one of Landlock that is used at most, 0: the kernel's.
func newDriver(t testing.TB, dir string, level int) *Driver {
	t.Helper()
	agent := agenttest.Bytes(t)
	d := New(Options{
		level: level,
		Dir:   filepath.Join(dir, "machines"), Blocks: filepath.Join(dir, "blocks"),
		Agent: func() ([]byte, error) { return agent, nil },
	})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

// place is a directory for a test's machines, which their users can pass through.
func place(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "pinfold-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // they must pass
		t.Fatal(err)
	}
	return dir
}

// TestConformance holds the driver to the contract, as root also with a kernel that keeps no
// signals and no sockets inside.
func TestConformance(t *testing.T) {
	dir := place(t)
	for _, level := range levels() {
		t.Run(fmt.Sprintf("level %d", level), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Driver { return newDriver(t, dir, level) }, drivertest.Options{
				CannotPause: "its processes have no control group",
				Kernel:      true,
				Host:        true,
				Watched:     true,
				NoPorts:     true,
				NoTerminals: os.Geteuid() != 0,
				KillAgent: func(m driver.Machine) error {
					if _, err := m.Usage(t.Context()); err != nil { // which looks for it
						return err
					}
					return unix.Kill(m.(*machine).meter.agent, unix.SIGKILL)
				},
				Break: func(_ *testing.T, p *driver.Plan) string {
					p.User.Home = p.Places + "/elsewhere"
					return "make the sandbox's directory"
				},
				State: []string{dir},
			})
		})
	}
}

func TestConformanceAsUser(t *testing.T) {
	asuser.Rerun(t, "TestConformance", []string{agenttest.Agent, drivertest.Probe}, nil)
}

// A process that ends takes nothing from the others on the host: the directory of machines,
// which it finds empty and removes, is made again.
func TestDirectoryIsMadeAgain(t *testing.T) {
	dir := place(t)
	d := newDriver(t, dir, 0)
	made := func(t *testing.T, d *Driver) {
		if err := newBox(t, d, sandbox.Limits{}).Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	made(t, d)
	t.Run("another process", func(t *testing.T) { made(t, newDriver(t, dir, 0)) })
	if _, err := os.Stat(d.o.Dir); !os.IsNotExist(err) {
		t.Fatalf("control: the directory is not removed: %v", err)
	}
	made(t, d)
}
