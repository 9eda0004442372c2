package gvisor

import (
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

func TestImage(t *testing.T) {
	runsc := runscForTests(t)
	ledger.Check(t)
	d, shown := opened(t, runsc), imagetest.Image(t)
	drivertest.Image(t, shown, func(script string) string {
		return createOf(t, d, planOf(t, d, shown, "image", sandbox.Limits{})).run(t, "/bin/sh", "-c", script)
	})
}

func TestHostileImage(t *testing.T) {
	runsc := runscForTests(t)
	ledger.Check(t)
	d, shown := opened(t, runsc), imagetest.Image(t)
	drivertest.HostileImage(t, shown, func(script string) string {
		return createOf(t, d, planOf(t, d, shown, "links", sandbox.Limits{})).run(t, "/bin/sh", "-c", script)
	})
}

func TestImageIsHeld(t *testing.T) {
	runsc := runscForTests(t)
	ledger.Check(t)
	d, shown := opened(t, runsc), imagetest.Image(t)
	plan := planOf(t, d, shown, "held", sandbox.Limits{})
	create := func(name string) (driver.Machine, error) { return d.Create(t.Context(), plan.Named(name)) }
	drivertest.ImageIsHeld(t, shown, create)
	drivertest.ImageIsGone(t, shown, nil, create)
}
