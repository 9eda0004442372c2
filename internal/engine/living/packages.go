package living

import (
	"context"
	"io"
	"maps"

	"pinfold/internal/driver"
	"pinfold/internal/engine/records"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// # Packages
//
// What a sandbox shows of packages stays for as long as it lives: it holds the sets, of
// which the store removes none that is held.

// fetch has sets here; a nil use is of none.
func (mg *Manager) fetch(ctx context.Context, tenant string, sets *packages.Sets) (*packages.Use, error) {
	if sets == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	return mg.packages.Fetch(ctx, tenant, sets)
}

// adoptPackages are the sets that an adopted sandbox shows. None is fetched: what is gone
// here is gone inside.
func (mg *Manager) adoptPackages(ctx context.Context, o records.Sandbox, plan driver.Plan) (*packages.Sets, *packages.Use, error) {
	if o.Info.Packages == nil {
		return nil, nil, nil //nolint:nilnil // there are none
	}
	c := o.Machine.Request
	spec := c.Machine()
	if spec.Driver = plan.Posture.Driver; len(plan.Template.Layers.Dirs) > 0 {
		spec.Template = plan.Template.ID // whatever the name stands for now
	}
	sets, err := mg.packages.Packages(ctx, o.Tenant, c.Packages, *o.Info.Packages, spec)
	if err != nil {
		return nil, nil, err
	}
	used, err := sets.Fetch(ctx, func(context.Context, sandbox.Spec, func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		return nil, sandbox.Errorf(sandbox.CodePackagesFailed, "the packages are gone")
	})
	return sets, used, err
}

// hasPackages are the packages that the sandbox shows, with versions and digests.
func (s *Sandbox) hasPackages() sandbox.Packages {
	if s.info.Packages == nil { // nobody changes it
		return sandbox.Packages{}
	}
	return *s.info.Packages
}

// env is what a command sees of the sandbox's environment and its own, with the places of
// packages.
func (s *Sandbox) env(c sandbox.Command) map[string]string {
	if s.sets == nil && len(c.Env) == 0 {
		return s.request.Env
	}
	all := maps.Clone(s.request.Env)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, c.Env)
	return s.sets.Env(all)
}
