// Command pinfold runs code nobody has read in a fresh sandbox and says
// honestly what happened. This file is wiring only: it is the one place that
// knows which drivers there are.
package main

import (
	"context"
	"os"

	"pinfold/internal/cli"
	"pinfold/internal/probe"
)

// version is set when a release is built.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == probe.ChildCommand {
		os.Exit(probe.Child(os.Args[2:], os.Stdout))
	}
	ctx := context.Background()
	os.Exit(cli.Main(ctx, cli.Deps{
		Args:  os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Version:   version,
		NewRunner: runner(ctx, os.Args[1:]),
		Probe:     probe.Run,
	}))
}
