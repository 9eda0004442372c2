// Command pinfold runs code nobody has read in a fresh sandbox and says
// honestly what happened, once or as a server. This package is wiring only: it
// hands the command line an engine with the drivers that there are.
package main

import (
	"context"
	"os"

	"pinfold/internal/bench"
	"pinfold/internal/cli"
	"pinfold/internal/config"
	"pinfold/internal/engine"
	"pinfold/internal/probe"
	"pinfold/internal/serve"
	"pinfold/internal/wiring"
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
		Probe:     probeAll,
		Serve: func(ctx context.Context, c *config.Config, o serve.Options) error {
			return serve.Serve(ctx, c, server(o))
		},
		CheckServe: func(ctx context.Context, c *config.Config) []serve.Finding {
			return serve.Check(ctx, c, server(serve.Options{}))
		},
		Bench: func(ctx context.Context, o bench.Options) (*bench.Report, error) {
			o.NewDriver, o.AgentSize = wiring.NewDriver, wiring.AgentSize
			return bench.Run(ctx, o)
		},
	}))
}

// server completes the options of a server with what only this program knows.
func server(o serve.Options) serve.Options {
	o.Version, o.Probe, o.Room, o.NewEngine = version, probe.Run, probe.Room, newEngine
	return o
}

// probeAll is what the doctor says: what the host can do, and whether it can carry
// what a server takes on where nothing is configured.
func probeAll(ctx context.Context) []probe.Finding {
	return append(probe.Run(ctx), probe.Room(probe.Demand{Sandboxes: config.Default().Capacity.Sandboxes})...)
}

// newEngine makes an engine with the agent that this program carries.
func newEngine(o engine.Options) (*engine.Engine, error) { return wiring.NewEngine(o, "") }

// runner returns what makes the engine. For a command line that runs a program,
// the engine looks at the host while the command line is still being read.
func runner(ctx context.Context, args []string) func(context.Context) (cli.Runner, error) {
	e, err := newEngine(engine.Options{})
	if err == nil && len(args) > 0 && args[0] == "run" {
		go e.Warm(ctx)
	}
	return func(context.Context) (cli.Runner, error) {
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}
