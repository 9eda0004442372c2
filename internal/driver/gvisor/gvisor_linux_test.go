package gvisor

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
)

// runscEnv names the runsc of the tests; else it is looked up in PATH.
const runscEnv = "PINFOLD_RUNSC"

// runscForTests returns a runsc, or ends the test.
func runscForTests(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "the gvisor driver needs root: run the tests as root")
	}
	path, err := exec.LookPath(cmp.Or(os.Getenv(runscEnv), "runsc"))
	if err != nil {
		drivertest.Missing(t, "there is no runsc: set %s=$(scripts/tool runsc): %v", runscEnv, err)
	}
	return path
}

func newDriver(t *testing.T, runsc string) *Driver {
	t.Helper()
	agent := agenttest.Bytes(t)
	return New(Options{
		Runsc: runsc, Agent: func() ([]byte, error) { return agent, nil }, Blocks: filepath.Join(t.TempDir(), "blocks"),
	})
}

func opened(t *testing.T, runsc string) *Driver {
	t.Helper()
	d := newDriver(t, runsc)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

// processNamed is the process of a machine that runsc has given that name.
func processNamed(m *machine, name string) int {
	ids, _ := m.group.Procs()
	for _, pid := range ids {
		args, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
		if strings.HasPrefix(string(args), name+"\x00") {
			return pid
		}
	}
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }

func TestConformance(t *testing.T) { conforms(t, nil) }

func TestConformanceOfImages(t *testing.T) { conforms(t, imagetest.Image) }

func conforms(t *testing.T, template func(testing.TB) image.Template) {
	runsc := runscForTests(t)
	drivertest.Run(t, func(t *testing.T) driver.Driver { return opened(t, runsc) }, drivertest.Options{
		Template: template,
		Again:    template != nil,
		Kernel:   true,
		Isolated: true,
		KillAgent: func(m driver.Machine) error {
			return unix.Kill(processNamed(m.(*machine), "runsc-sandbox"), unix.SIGKILL)
		},
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Limits.DiskBytes = -1
			return "mount tmpfs at disk"
		},
	})
}
