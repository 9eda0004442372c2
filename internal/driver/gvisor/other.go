//go:build !linux

package gvisor

import (
	"context"
	"runtime"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

type local struct{}

type proof struct{}

func usableHere() *sandbox.Error {
	return unavailable("the gvisor driver does not work on " + runtime.GOOS + ": runsc runs on Linux").WithHint("run Pinfold on Linux")
}

// Probe says that there is no Linux.
func (d *Driver) Probe(context.Context, image.Template) (driver.Report, error) {
	return driver.Report{Driver: Name, Level: sandbox.LevelKernel, Blocked: usableHere()}, nil
}

// Create makes nothing.
func (d *Driver) Create(context.Context, driver.Plan) (driver.Machine, error) {
	return nil, usableHere()
}

// Leftovers finds nothing.
func (d *Driver) Leftovers(context.Context) ([]driver.Leftover, error) { return nil, nil }

// Close closes nothing.
func (d *Driver) Close() error { return nil }
