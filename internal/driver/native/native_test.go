//go:build linux

package native

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/asuser"
)

// newDriver opens a driver for one test.
func newDriver(t testing.TB, state string) *Driver {
	t.Helper()
	agent := agenttest.Bytes(t)
	d := New(Options{
		StateDir: state,
		Agent:    func() ([]byte, error) { return agent, nil },
	})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

// made makes a machine that is destroyed when the test ends.
func made(t testing.TB, d *Driver, id string) *machine {
	t.Helper()
	m, err := d.Create(t.Context(), planFor(t, d, id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m.(*machine)
}

// greeted returns the host's half of a machine's agent.
func greeted(t testing.TB, m *machine) *guest.Guest {
	t.Helper()
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := guest.New(t.Context(), conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, Home: sandbox.Home, SwitchUser: m.plan.SwitchUser})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func TestConformance(t *testing.T) { conforms(t, imagetest.Host) }

// The same holds for sandboxes of an image.
func TestConformanceOfImages(t *testing.T) { conforms(t, imagetest.Image) }

func conforms(t *testing.T, template func(testing.TB) image.Template) {
	state := filepath.Join(t.TempDir(), "state")
	drivertest.Run(t, func(t *testing.T) driver.Driver { return newDriver(t, state) }, drivertest.Options{
		Template:    template,
		CannotPause: cannotPause(),
		Kernel:      true,
		Isolated:    true,
		Host:        true,
		KillAgent:   func(m driver.Machine) error { return unix.Kill(m.(*machine).child.PID, unix.SIGKILL) },
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Hostname = strings.Repeat("x", 65) // the kernel takes 64 bytes
			return "set host name"
		},
		Zygotes: zygotes,
		State:   []string{state},
	})
}

// cannotPause says why there is no pause here: on version 1 the freezer is root's.
func cannotPause() string {
	if os.Geteuid() != 0 && unix.Access("/sys/fs/cgroup/freezer", unix.F_OK) == nil && unix.Access("/sys/fs/cgroup/freezer/pinfold", unix.W_OK) != nil {
		return "root has not shared the freezer with an ordinary user"
	}
	return ""
}

func TestConformanceAsUser(t *testing.T) {
	asuser.Rerun(t, "TestConformance", []string{agenttest.Agent, drivertest.Probe}, nil)
}

func TestConformanceOfImagesAsUser(t *testing.T) {
	asuser.Rerun(t, "TestConformanceOfImages", []string{agenttest.Agent, drivertest.Probe}, nil)
}

// The kernel ends sandboxes before it ends the process that made them.
func TestOOMScore(t *testing.T) {
	score := func(who string) string {
		text, err := os.ReadFile("/proc/" + who + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := score("self")
	d := newDriver(t, filepath.Join(t.TempDir(), "state"))
	m := made(t, d, "oom-score")
	pid := m.child.PID
	if got := score(strconv.Itoa(pid)); got != "500" {
		t.Errorf("the sandbox's score is %s, want 500", got)
	}
	if got := score("self"); got != before {
		t.Errorf("making a sandbox changed our own score from %s to %s", before, got)
	}
}
