//go:build !linux

package docker

import (
	"context"
	"runtime"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// local is nothing here.
type local struct{}

type copies struct{}

func (d *Driver) closeLocal() error { return nil }

// usableHere says that machines are not made here.
func usableHere() *sandbox.Error {
	return unavailable("the docker driver does not work on " + runtime.GOOS + " yet: its engine runs in a virtual machine there").
		WithHint("run Pinfold on Linux, beside the engine")
}

// Create makes nothing.
func (d *Driver) Create(context.Context, driver.Plan) (driver.Machine, error) {
	return nil, usableHere()
}

// Leftovers finds nothing.
func (d *Driver) Leftovers(context.Context) ([]driver.Leftover, error) { return nil, nil }

// Abilities says that machines outlive the process that made them.
func (d *Driver) Abilities() driver.Abilities {
	return driver.Abilities{Level: sandbox.LevelContainer, Shows: true, Elsewhere: true, Pauses: true, Snapshots: []string{sandbox.SnapshotFiles}}
}
