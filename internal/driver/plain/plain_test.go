//go:build linux

package plain

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

func TestConformance(t *testing.T) {
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "it mounts, which takes root: run the tests as root")
	}
	state, agent := t.TempDir(), filepath.Join(agenttest.Install(t, agenttest.Agent), "pinfold-agent")
	drivertest.Run(t, func(*testing.T) driver.Driver { return New(Options{StateDir: state, Agent: agent, Allow: true}) }, drivertest.Options{
		CannotPause: "its processes have no control group",
		Kernel:      true,
		Kept:        true,
		KillAgent:   func(m driver.Machine) error { return syscall.Kill(m.(*machine).Agent.PID, syscall.SIGKILL) },
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.ID = "not/here"
			return "make the machine's directory"
		},
		State: []string{state},
	})
}

// It is not for code that nobody has read.
func TestRefused(t *testing.T) {
	r, err := New(Options{}).Probe(t.Context(), imagetest.Host(t))
	if err != nil || r.Blocked == nil || r.Blocked.Code != sandbox.CodeDriverUnavailable {
		t.Fatalf("%+v, %v", r.Blocked, err)
	}
	if _, err := driver.MakePlan(sandbox.Spec{}.WithDefaults().Machine(), imagetest.Host(t), r, "id"); err == nil {
		t.Error("it makes a plan")
	}
}
