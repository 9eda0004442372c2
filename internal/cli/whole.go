//go:build !lean

package cli

import (
	"context"
	"io"

	"pinfold/internal/bench"
	"pinfold/internal/config"
	"pinfold/internal/engine/runs"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/probe"
	"pinfold/internal/serve"
	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

// Whole is what the commands work with that only the whole program has (see package
// wholebin). Every field must be set.
type Whole struct {
	// NewStronger is Deps.NewRunner for a run that asks for more than the drivers of every
	// run: what there is on this host without a server's configuration. A policy, which
	// may be nil, holds them, and ask asks a person for it.
	NewStronger func(ctx context.Context, p *policy.Policy, ask runs.Approver) (Runner, error)
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
	// Bundle fetches packages and writes them as a bundle, for "packages bundle".
	Bundle func(ctx context.Context, p sandbox.Packages, in sandbox.MachineSpec, to io.Writer) ([]packages.Loaded, error)
}

// wholeCommands are those of a server, of the host, and the benchmark.
func (a *app) wholeCommands() []namedCommand {
	return []namedCommand{
		{"serve", a.serveCommand},
		{"key", a.keyCommand},
		{"secret", a.secretCommand},
		{"scan", a.scanCommand},
		{"audit", a.auditCommand},
		{"policy", a.policyCommand},
		{"approvals", a.approvalsCommand},
		{"approve", a.approveCommand},
		{"deny", a.denyCommand},
		{"receipt", a.receiptCommand},
		{"manifest", a.manifestCommand},
		{"template", a.templateCommand},
		{"packages", a.packagesCommand},
		{"doctor", a.doctorCommand},
		{compareName, a.compareCommand},
		{attackName, a.attackCommand},
		{benchName, a.benchCommand},
	}
}

// handOver has nobody to hand over to.
func (a *app) handOver() (status int, over bool) { return 0, false }

// prepareFor remembers whether it takes stronger drivers than every run has, and a policy.
func (a *app) prepareFor(w wish, _ bool) error {
	var rules *policy.Policy
	if w.policy != "" {
		var err error
		if rules, _, err = readPolicy(w.policy); err != nil {
			return prefixed("--policy", err)
		}
	}
	if p := rules.With(w.rule); p != nil {
		a.NewRunner = func(ctx context.Context) (Runner, error) { return a.Whole.NewStronger(ctx, p, a.askHere) }
		return nil
	}
	if w.stronger() && !a.remote() {
		a.NewRunner = func(ctx context.Context) (Runner, error) { return a.Whole.NewStronger(ctx, nil, nil) }
	}
	return nil
}
