//go:build !lean

package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"pinfold/internal/bench"
	"pinfold/internal/bench/load"
	"pinfold/internal/cli"
	"pinfold/internal/compare"
	"pinfold/internal/config"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/probe"
	"pinfold/internal/serve"
	"pinfold/internal/store/memstore"
	"pinfold/internal/template/build"
	"pinfold/internal/wiring"
	"pinfold/sandbox"
)

// child is the benchmark's client, if this process is to be that.
func child(args []string) (status int, over bool) {
	if len(args) == 0 || args[0] != load.Command {
		return 0, false
	}
	return load.Main(args[1:], os.Stdout, os.Stderr), true
}

// whole is what the lean program is without.
func whole() cli.Whole {
	// People look for the process by this name, also where the lean program has started
	// us from a descriptor. Where there is no such file, nobody does.
	_ = os.WriteFile("/proc/self/comm", []byte("pinfold"), 0)
	return cli.Whole{
		NewStronger: newStronger,

		Probe: probeAll,
		Serve: func(ctx context.Context, c *config.Config, o serve.Options) error {
			return serve.Serve(ctx, c, server(c, o))
		},
		CheckServe: func(ctx context.Context, c *config.Config) []serve.Finding {
			return serve.Check(ctx, c, server(c, serve.Options{}))
		},
		Bench: func(ctx context.Context, o bench.Options) (*bench.Report, error) {
			o.NewDriver, o.AgentSize, o.Program = wiring.NewDriver, wiring.AgentSize, program()
			return bench.Run(ctx, o)
		},
		Compare:   compareDrivers,
		Sandboxes: sandboxes,
		Bundle:    bundle,
	}
}

// newStronger makes an engine with the drivers that are found on this host, too. What a run
// of theirs that was killed has left behind goes first.
func newStronger(ctx context.Context, p *policy.Policy, ask runs.Approver) (cli.Runner, error) {
	c := config.Default()
	c.Drivers = config.Found()
	o := ownOptions()
	o.Approver = ask
	if p != nil {
		o.Rules = func() *policy.Policy { return p }
	}
	e, err := wiring.NewEngine(o, parts(c))
	if err == nil {
		_, _ = e.Leftovers(ctx) // what cannot be removed is in nobody's way
	}
	return e, err
}

// sandboxes opens an engine for the steps of a template's build.
func sandboxes(ctx context.Context, images string) (build.Sandboxes, func() error, error) {
	o := optionsIn(filepath.Dir(images))
	o.Store = memstore.New(memstore.Options{})
	e, err := wiring.NewEngine(o, wiring.Parts{Images: images})
	if err != nil {
		return nil, nil, err
	}
	if err := e.Open(ctx); err != nil {
		_ = e.Close()
		return nil, nil, err
	}
	return build.In(e.Manager, e.Runner, records.LocalTenant), e.Close, nil
}

// bundle writes packages, of which an engine of our own fetches what is not here.
func bundle(ctx context.Context, p sandbox.Packages, in sandbox.MachineSpec, to io.Writer) ([]packages.Loaded, error) {
	e, err := newEngine(ownOptions())
	if err != nil {
		return nil, err
	}
	all, err := e.Bundle(ctx, p, in, to)
	return all, errors.Join(err, e.Close())
}

// compareDrivers compares all drivers of this program, or attacks them.
func compareDrivers(ctx context.Context, o cli.CompareOptions) (*bench.Report, error) {
	state, err := os.MkdirTemp("", "pinfold-") // short: sockets are in it
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(state) //nolint:errcheck // a temporary directory
	c := config.Default()
	c.State, c.Drivers = state, config.Found()
	c.Drivers.Docker.Image = o.Image
	c.Drivers.GVisor.Runsc = cmp.Or(o.Runsc, c.Drivers.GVisor.Runsc)
	c.Drivers.QEMU.Kernel = cmp.Or(o.Kernel, c.Drivers.QEMU.Kernel)
	o.Runsc = c.Drivers.GVisor.Runsc
	if o.Image == "" {
		o.LeftOut = map[string]string{"docker": "--docker-image names an image of the engine's in which Python lies where it lies here"}
	}
	o.NewEngine = func() (*engine.Engine, error) {
		return wiring.NewEngine(engine.Options{}, parts(c))
	}
	if o.Attack {
		return compare.Attack(ctx, o.Options)
	}
	return compare.Run(ctx, o.Options)
}

// program is the file that users start: the lean program, which names itself when it
// hands over (wholebin.Exec), or this one.
func program() string {
	if filepath.IsAbs(os.Args[0]) {
		return os.Args[0]
	}
	self, err := os.Executable()
	if err != nil {
		return "/usr/local/bin/pinfold"
	}
	return self
}

// server completes the options of a server with what only this program knows.
func server(c *config.Config, o serve.Options) serve.Options {
	o.Version, o.Probe, o.Room = version, runProbe, probe.Room
	o.NewEngine = func(e engine.Options) (*engine.Engine, error) {
		return wiring.NewEngine(e, parts(c))
	}
	return o
}

// parts are a server's.
func parts(c *config.Config) wiring.Parts {
	return wiring.Parts{Images: images(c.State), Drivers: wiring.Configured(c)}
}

// probeAll is what the doctor says: what the host can do, and whether it can carry
// what a server takes on where nothing is configured.
func probeAll(ctx context.Context) []probe.Finding {
	return append(runProbe(ctx), probe.Room(probe.Demand{Sandboxes: config.Default().Capacity.Sandboxes})...)
}

func runProbe(ctx context.Context) []probe.Finding { return probe.Run(ctx, program()) }
