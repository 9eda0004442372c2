package living

import (
	"context"
	"fmt"
	"slices"

	"pinfold/internal/driver"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// planSandbox chooses the driver and makes the plan for a living sandbox. One that begins
// with something is of that image, whatever the template's name stands for now.
func (mg *Manager) planSandbox(ctx context.Context, c sandbox.Create, from *origin) (driver.Driver, driver.Plan, error) {
	spec := c.Machine()
	if c.OnOutOfMemory == sandbox.OutOfMemoryProcess { // else nobody ends a single one
		spec.Require = append(slices.Clone(spec.Require), sandbox.FeatureMemory)
	}
	ofImage := from != nil && c.Template != sandbox.TemplateHost
	if ofImage {
		spec.Template = from.image
	}
	d, plan, err := mg.planner.Plan(ctx, spec, records.NewID(""))
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
	if ofImage {
		plan.Template.Name = c.Template
	}
	plan.KillOne = c.OnOutOfMemory == sandbox.OutOfMemoryProcess
	return d, plan, err
}

// completed is a request with what it leaves out filled in, if the operator allows what it
// asks for.
func (mg *Manager) completed(ctx context.Context, tenant string, c sandbox.Create) (sandbox.Create, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	var err error
	if c.Limits, err = mg.policy.Limits(c.Limits, false); err != nil {
		return c, err
	}
	if c.TTLMS == 0 {
		c.TTLMS = mg.defaultTTL.Milliseconds()
	}
	c = c.WithDefaults()
	if c.Network, err = mg.policy.Network.Endpoints(ctx, tenant, c.Network); err != nil {
		return c, err
	}
	return c, mg.checkTTL(c.TTLMS)
}
