//go:build !lean

package cli

import (
	"context"

	"pinfold/internal/bench"
	"pinfold/internal/config"
	"pinfold/internal/probe"
	"pinfold/internal/serve"
	"pinfold/internal/template/build"
)

// Whole is what the commands work with that only the whole program has (see package
// wholebin). Every field must be set.
type Whole struct {
	// NewStronger is Deps.NewRunner for a run that asks for more than the drivers of every
	// run: what there is on this host without a server's configuration.
	NewStronger func(ctx context.Context) (Runner, error)
	// Probe finds out what this host can do, for "doctor".
	Probe func(ctx context.Context) []probe.Finding
	// Serve runs a server until it is told to stop, and CheckServe looks at
	// what it would need, for "serve".
	Serve      func(ctx context.Context, c *config.Config, o serve.Options) error
	CheckServe func(ctx context.Context, c *config.Config) []serve.Finding
	// Bench measures, for "bench".
	Bench func(ctx context.Context, o bench.Options) (*bench.Report, error)
	// Compare measures the drivers beside each other, for "compare", or attacks them, for
	// "attack".
	Compare func(ctx context.Context, o CompareOptions) (*bench.Report, error)
	// Sandboxes are those of an engine of our own that knows the images of a directory,
	// for "template build". done ends it.
	Sandboxes func(ctx context.Context, images string) (boxes build.Sandboxes, done func() error, err error)
}

// wholeCommands are those of a server, of the host, and the benchmark.
func (a *app) wholeCommands() []namedCommand {
	return []namedCommand{
		{"serve", a.serveCommand},
		{"key", a.keyCommand},
		{"secret", a.secretCommand},
		{"scan", a.scanCommand},
		{"audit", a.auditCommand},
		{"receipt", a.receiptCommand},
		{"template", a.templateCommand},
		{"doctor", a.doctorCommand},
		{compareName, a.compareCommand},
		{attackName, a.attackCommand},
		{benchName, a.benchCommand},
	}
}

// handOver has nobody to hand over to.
func (a *app) handOver() (status int, over bool) { return 0, false }

// prepareFor remembers whether it takes stronger drivers than every run has.
func (a *app) prepareFor(w wish, _ bool) error {
	if w.stronger() && !a.remote() {
		a.NewRunner = a.Whole.NewStronger
	}
	return nil
}
