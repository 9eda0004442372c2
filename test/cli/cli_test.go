// Package cli tests the command line as people use it: scripts that run the
// real main of Pinfold's command line, with a runner that plays a program's
// fate instead of making sandboxes. Scripts with real sandboxes live beside
// the drivers.
package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"pinfold/internal/bench"
	"pinfold/internal/cli"
	"pinfold/internal/packages"
	"pinfold/internal/probe"
	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pinfold": pinfold})
}

// pinfold is the program of the scripts.
func pinfold() {
	if len(os.Args) > 1 && os.Args[1] == probe.ChildCommand {
		os.Exit(probe.Child(os.Args[2:], os.Stdout))
	}
	os.Exit(cli.Main(context.Background(), cli.Deps{
		Args:  os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Version:   "1.2.3-test",
		NewRunner: func(context.Context) (cli.Runner, error) { return player{}, nil },
		Whole:     cli.Whole{Probe: hostFromEnv, Bench: benchFromEnv, Sandboxes: noSandboxes},
	}))
}

// noSandboxes has none: what a script builds needs none, or says that it did.
func noSandboxes(context.Context, string) (build.Sandboxes, func() error, error) {
	return nowhere{}, func() error { return nil }, nil
}

type nowhere struct{}

func (nowhere) Create(context.Context, sandbox.Create) (build.Sandbox, error) {
	return nil, sandbox.Errorf(sandbox.CodeDriverUnavailable, "there are no sandboxes in this test")
}

func (nowhere) Packages(context.Context, sandbox.Packages, string, string) (*packages.Use, error) {
	return nil, sandbox.Errorf(sandbox.CodePackagesFailed, "there are no packages in this test")
}

// benchFromEnv measures nothing: a script chooses what was found.
func benchFromEnv(_ context.Context, o bench.Options) (*bench.Report, error) {
	o.Progress("looking around")
	t := &bench.Table{ID: "t", First: "what", Columns: []bench.Column{{Key: "median_ms", Head: "median", Unit: bench.UnitMS}}}
	t.Rows = append(t.Rows, bench.Row{What: "bare", Values: []float64{20}}, bench.Row{What: "pinfold run", Values: []float64{30}})
	s := &bench.Section{
		Part: "latency", Title: "Latency of `things`", Tables: []*bench.Table{t},
		Charts: []bench.Chart{{File: "latency.svg", Title: "Latency", Unit: bench.UnitMS, Bars: []bench.Bar{{Label: "bare", Value: 20}}}},
	}
	o.Section(s)
	r := &bench.Report{
		Command: "bench",
		Version: o.Version, Sections: []*bench.Section{s}, Failures: []string{},
		Targets: []bench.Target{{Group: "Targets", Aim: "fast", State: bench.NotReached, Measured: fmt.Sprintf("%d rounds of %s at %s", o.Rounds, strings.Join(o.Only, "+"), o.Server)}},
	}
	if os.Getenv("BENCH") == "bad" {
		r.Failures = append(r.Failures, "a sandbox failed")
	}
	return r, nil
}

// hostFromEnv lets a script choose the host that the doctor sees.
func hostFromEnv(ctx context.Context) []probe.Finding {
	switch os.Getenv("HOST") {
	case "real":
		return probe.Run(ctx, "/usr/local/bin/pinfold")
	case "bad":
		return []probe.Finding{
			{Code: "a", Title: "something fine", Severity: probe.OK, Answer: probe.Yes, Probed: "looked", Means: "m"},
			{
				Code: "b", Title: "something broken", Severity: probe.Problem, Answer: probe.No,
				Probed: "tried \x1b[2J", Means: "nothing works", Fix: "sudo mend it",
			},
			{Code: "c", Title: "something weak", Severity: probe.Warning, Answer: probe.No, Probed: "looked", Means: "little works", Fix: "sudo mend it"},
		}
	}
	return []probe.Finding{{Code: "a", Title: "something fine", Severity: probe.OK, Answer: probe.Yes, Probed: "looked", Means: "m"}}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
