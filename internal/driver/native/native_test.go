//go:build linux

package native

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
	"pinfold/test/asuser"
)

// hostTemplate is looked at once for all tests.
var hostTemplate = sync.OnceValues(func() (image.Template, error) { return image.Host(os.DirFS("/")) })

// newDriver opens a driver for one test.
func newDriver(t testing.TB, state string) *Driver {
	t.Helper()
	agent := agenttest.Bytes(t)
	d := New(Options{
		StateDir: state,
		Agent:    func() ([]byte, error) { return agent, nil },
		Template: func(string) (image.Template, error) { return hostTemplate() },
	})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	drivertest.Run(t, func(t *testing.T) driver.Driver { return newDriver(t, state) }, drivertest.Options{
		Kernel:    true,
		KillAgent: func(m driver.Machine) error { return unix.Kill(m.(*machine).child.PID, unix.SIGKILL) },
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Hostname = strings.Repeat("x", 65) // the kernel takes 64 bytes
			return "set host name"
		},
		State: []string{state},
	})
}

func TestConformanceAsUser(t *testing.T) {
	asuser.Rerun(t, "TestConformance", []string{agenttest.Agent, drivertest.Probe}, nil)
}
