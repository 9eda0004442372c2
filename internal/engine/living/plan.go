package living

import (
	"context"
	"fmt"
	"slices"

	"pinfold/internal/driver"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// planSandbox chooses the driver and makes the plan for a living sandbox.
func (mg *Manager) planSandbox(ctx context.Context, c sandbox.Create) (driver.Driver, driver.Plan, error) {
	spec := c.Machine()
	if c.OnOutOfMemory == sandbox.OutOfMemoryProcess { // else nobody ends a single one
		spec.Require = append(slices.Clone(spec.Require), sandbox.FeatureMemory)
	}
	d, plan, err := mg.planner.Plan(ctx, spec, records.NewID(""))
	if e := sandbox.AsError(err); e != nil && e.Field == fmt.Sprintf("require[%d]", len(c.Require)) { // the one that was added
		err = e.WithField("on_out_of_memory")
	}
	plan.KillOne = c.OnOutOfMemory == sandbox.OutOfMemoryProcess
	return d, plan, err
}
