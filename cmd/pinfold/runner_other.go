//go:build !linux

package main

import (
	"context"
	"runtime"

	"pinfold/internal/cli"
	"pinfold/sandbox"
)

// runner has no driver to offer: sandboxes are made of Linux's own means.
func runner(context.Context, []string) func(context.Context) (cli.Runner, error) {
	return func(context.Context) (cli.Runner, error) { return nil, unavailable() }
}

func unavailable() error {
	return &sandbox.Error{
		Code:    sandbox.CodeDriverUnavailable,
		Message: "no driver of this program works on " + runtime.GOOS,
		Hint:    "run pinfold on Linux, in a virtual machine for example",
	}
}
