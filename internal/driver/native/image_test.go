//go:build linux

package native

import (
	"path/filepath"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image/imagetest"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

func TestImage(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d, shown := newDriver(t, state), imagetest.Image(t)
	drivertest.Image(t, shown, func(script string) string { return printedBy(t, d, planOf(t, d, shown, "image"), script) })
	if out := printedBy(t, d, planOf(t, d, shown, "home"), "pwd"); out != "/home/user\n" {
		t.Errorf("it begins in %q", out)
	}
}

func TestImageAsUser(t *testing.T) { asuser.Rerun(t, "TestImage", []string{agenttest.Agent}, nil) }

func TestImageIsHeldAsUser(t *testing.T) {
	asuser.Rerun(t, "TestImageIsHeld", []string{agenttest.Agent}, nil)
}

func TestImageIsHeld(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d, shown := newDriver(t, state), imagetest.Image(t)
	plan := planOf(t, d, shown, "plan")
	create := func(name string) (driver.Machine, error) { return d.Create(t.Context(), plan.Named(name)) }
	drivertest.ImageIsHeld(t, shown, create)
	drivertest.ImageIsGone(t, shown, nil, create)
}

func TestHostileImage(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d, shown := newDriver(t, state), imagetest.Image(t)
	drivertest.HostileImage(t, shown, func(script string) string { return printedBy(t, d, planOf(t, d, shown, "links"), script) })
}
