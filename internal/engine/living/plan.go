package living

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"pinfold/internal/driver"
	"pinfold/internal/engine/records"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// planned is the machine of a living sandbox.
type planned struct {
	spec   sandbox.MachineSpec
	driver driver.Driver
	plan   driver.Plan
	sets   *packages.Sets // of packages, that it shows; nil: none
}

// planSandbox chooses the driver and makes the plan for a living sandbox. One that begins
// with something is of that image, whatever the template's name stands for now.
func (mg *Manager) planSandbox(ctx context.Context, tenant string, c sandbox.Create, from *origin) (p planned, err error) {
	spec := c.Machine()
	if c.OnOutOfMemory == sandbox.OutOfMemoryProcess { // else nobody ends a single one
		spec.Require = append(slices.Clone(spec.Require), sandbox.FeatureMemory)
	}
	ofImage := from != nil && c.Template != sandbox.TemplateHost
	if ofImage {
		spec.Template = from.image
	}
	if p.sets, err = mg.packages.Packages(ctx, tenant, c.Packages, from.had(), spec); err != nil {
		return p, err
	}
	d, plan, err := mg.planner.Plan(ctx, p.sets.Within(spec), records.NewID(""))
	switch e := sandbox.AsError(err); {
	case e == nil:
	case e.Field == fmt.Sprintf("require[%d]", len(c.Require)): // the one that was added
		err = e.WithField("on_out_of_memory")
	case ofImage && e.Code == sandbox.CodeTemplateUnknown:
		err = from.gone(c.Template)
	}
	if err == nil && from != nil {
		err = from.suits(plan.Limits, plan.Template.ID, c.Template)
	}
	if err == nil {
		err = p.sets.Showable(d)
	}
	if ofImage {
		plan.Template.Name = c.Template
	}
	plan.KillOne = c.OnOutOfMemory == sandbox.OutOfMemoryProcess
	p.spec, p.driver, p.plan = p.sets.Within(c.Machine()), d, plan
	return p, err
}

// completed is a request with what it leaves out filled in, if the operator allows what it
// asks for.
func (mg *Manager) completed(ctx context.Context, tenant string, c sandbox.Create) (sandbox.Create, *sandbox.ProfileRef, error) {
	if err := c.Validate(); err != nil {
		return c, nil, err
	}
	c, profile, err := mg.policy.Create(ctx, tenant, c)
	if err != nil {
		return c, nil, err
	}
	if c.Limits, err = mg.policy.Limits(c.Limits, false); err != nil {
		return c, nil, err
	}
	if c.TTLMS == 0 {
		c.TTLMS = mg.policy.Profiles.Life(c.Profile, cmp.Or(mg.defaultTTL.Milliseconds(), sandbox.DefaultTTLMS))
	}
	c = c.WithDefaults()
	if c.Network, err = mg.policy.Network.Endpoints(ctx, tenant, c.Network); err != nil {
		return c, nil, err
	}
	return c, profile, mg.checkTTL(c.TTLMS)
}
