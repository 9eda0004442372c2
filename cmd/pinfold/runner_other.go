//go:build !linux

package main

import (
	"context"
	"runtime"

	"pinfold/internal/cli"
	"pinfold/sandbox"
)

// newRunner has no driver to offer: sandboxes are made of Linux's own means.
func newRunner(context.Context) (cli.Runner, error) {
	return nil, &sandbox.Error{
		Code:    sandbox.CodeDriverUnavailable,
		Message: "no driver of this program works on " + runtime.GOOS,
		Hint:    "run pinfold on Linux, in a virtual machine for example",
	}
}
