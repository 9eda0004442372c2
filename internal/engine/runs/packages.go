package runs

import (
	"context"
	"io"

	"pinfold/internal/driver"
	"pinfold/internal/engine/records"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// Packages says which sets of packages a machine is to show; nil: none. It fetches nothing.
// had is as packages.Inside has it.
func (rn *Runner) Packages(ctx context.Context, tenant string, p, had sandbox.Packages, in sandbox.MachineSpec) (*packages.Sets, error) {
	return rn.wanted(ctx, tenant, p, in, packages.Inside{Had: had})
}

// PackagesOf has packages here for the programs of an image, which the machine shows under
// an ID of the moment, until they are released.
func (rn *Runner) PackagesOf(ctx context.Context, tenant string, p sandbox.Packages, in sandbox.MachineSpec, image string) (*packages.Use, error) {
	sets, err := rn.wanted(ctx, tenant, p, in, packages.Inside{Image: image})
	if err != nil || sets == nil {
		return nil, err
	}
	return rn.Fetch(ctx, tenant, sets)
}

// wanted fills in what the packages are used in.
func (rn *Runner) wanted(ctx context.Context, tenant string, p sandbox.Packages, in sandbox.MachineSpec, inside packages.Inside) (*packages.Sets, error) {
	if p.Empty() {
		return nil, nil //nolint:nilnil // there are none
	}
	t, err := rn.planner.Template(in.Template)
	if err != nil {
		return nil, err
	}
	shown := t
	if d, plan, err := rn.planner.Plan(ctx, in, ""); err == nil && d.Abilities().Elsewhere && len(t.Layers.Dirs) == 0 {
		inside.Where = d.Name()
		if shown = plan.Template; shown.ID != t.ID {
			inside.Where = shown.ID
		}
	} // an error is said by who plans the machine with the packages
	inside.Template, inside.Lookup, inside.Host, inside.Driver, inside.Isolation = t, rn.planner.Lookup(shown), rn.host, in.Driver, in.Isolation
	return rn.packages.Want(tenant, p, inside)
}

// planned is the machine that a run takes.
type planned struct {
	driver   driver.Driver
	plan     driver.Plan
	packages *packages.Sets // that it shows; nil: none
}

// plan says what a run takes, packages included. It fetches none.
func (rn *Runner) plan(ctx context.Context, tenant string, spec sandbox.Spec, id string) (p planned, err error) {
	if p.packages, err = rn.Packages(ctx, tenant, spec.Packages, sandbox.Packages{}, spec.Machine()); err != nil {
		return p, err
	}
	p.driver, p.plan, err = rn.planner.Plan(ctx, p.packages.Within(spec.Machine()), id)
	if err == nil {
		err = p.packages.Showable(p.driver)
	}
	return p, err
}

// Fetch has a tenant's packages here until they are released. What installs them is a run
// that is not recorded, with no more than the operator's limits.
func (rn *Runner) Fetch(ctx context.Context, tenant string, sets *packages.Sets) (*packages.Use, error) {
	return sets.Fetch(ctx, rn.installs(tenant))
}

// Bundle writes packages to a file for other machines, and says what is in it.
func (rn *Runner) Bundle(ctx context.Context, p sandbox.Packages, in sandbox.MachineSpec, to io.Writer) ([]packages.Loaded, error) {
	sets, err := rn.Packages(ctx, records.LocalTenant, p, sandbox.Packages{}, in)
	if err != nil {
		return nil, err
	}
	return sets.Bundle(ctx, rn.installs(records.LocalTenant), to)
}

// installs is how installers are run for a tenant.
func (rn *Runner) installs(tenant string) packages.Run {
	return func(ctx context.Context, spec sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		for _, info := range sandbox.LimitTable() {
			if most := rn.policy.Max.Get(info.Field); most > 0 && spec.Limits.Get(info.Field) > most {
				spec.Limits.Set(info.Field, most)
			}
		}
		return rn.unrecorded(ctx, Request{Spec: spec, Tenant: tenant, Artifact: artifact, NoResults: true, Own: true}, false)
	}
}

// fetch has the job's packages here. It comes before the job has room, as what installs
// them takes some of its own, and after the rules, which may not let it run.
func (j *job) fetch(ctx context.Context) (err error) {
	if j.packages == nil {
		return nil
	}
	if j.used, err = j.runner.Fetch(ctx, j.request.Tenant, j.packages); err == nil {
		j.result.Packages = &j.used.Packages
	}
	return err
}
