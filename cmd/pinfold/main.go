// Command pinfold runs code nobody has read in a fresh sandbox and says
// honestly what happened, once or as a server. This package is wiring only: it
// hands the command line an engine with the drivers that there are.
package main

import (
	"context"
	"io"
	"log" //nolint:depguard // to be silenced
	"os"
	"path/filepath"

	"pinfold/internal/cli"
	"pinfold/internal/config/defaults"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/packages"
	"pinfold/internal/probe"
	"pinfold/internal/wiring"
)

// version is set when a release is built.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == probe.ChildCommand {
		os.Exit(probe.Child(os.Args[2:], os.Stdout))
	}
	if status, over := child(os.Args[1:]); over {
		os.Exit(status)
	}
	// Nothing of ours writes to the standard log. net/http does, with the bytes of servers
	// that break the protocol, and what a sandbox asked for may choose these.
	log.SetOutput(io.Discard)
	ctx := context.Background()
	os.Exit(cli.Main(ctx, cli.Deps{
		Args:  os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Version:   version,
		NewRunner: runner(ctx, os.Args[1:]),
		Whole:     whole(),
	}))
}

// newEngine makes an engine with the agent that this program carries.
func newEngine(o engine.Options) (*engine.Engine, error) {
	return wiring.NewEngine(o, wiring.Parts{Images: images(defaults.State())})
}

// images is the directory of the templates that are images, in that of the state.
func images(state string) string {
	if state == "" {
		return ""
	}
	return filepath.Join(state, "templates")
}

// ownOptions are those of an engine for whoever runs a program here: this host's user, and
// their own operator.
func ownOptions() engine.Options { return optionsIn(defaults.State()) }

// optionsIn are the same with packages in another state.
func optionsIn(state string) engine.Options {
	o := engine.Options{Policy: admission.Policy{Network: admission.Network{Own: true}}}
	if state != "" {
		o.Packages = packages.New(packages.Options{Dir: filepath.Join(state, packages.DirName), Indexes: packages.FromEnv()})
	}
	return o
}

// runner returns what makes the engine. For a command line that runs a program,
// the engine looks at the host while the command line is still being read.
func runner(ctx context.Context, args []string) func(context.Context) (cli.Runner, error) {
	e, err := newEngine(ownOptions())
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
