//go:build !linux

package wiring

import (
	"runtime"

	"pinfold/internal/driver"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// NewEngine has no driver to offer: sandboxes are made of Linux's own means.
// The error is of code driver_unavailable.
func NewEngine(engine.Options, Parts) (*engine.Engine, error) {
	return nil, unavailable()
}

// CheckAgent has the same to say.
func CheckAgent(string) error { return unavailable() }

// NewDriver has the same to say.
func NewDriver() (driver.Driver, error) { return nil, unavailable() }

// AgentSize has the same to say.
func AgentSize() (int64, error) { return 0, unavailable() }

func unavailable() error {
	return &sandbox.Error{
		Code:    sandbox.CodeDriverUnavailable,
		Message: "no driver of this program works on " + runtime.GOOS,
		Hint:    "run it on Linux, in a virtual machine for example",
	}
}
