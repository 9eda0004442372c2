package compare

import (
	"context"
	"fmt"

	"pinfold/internal/bench"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Attack tries every attack on every driver that works here, and looks at what the sandboxes
// have left on this host. What a driver should have held and did not, and what is left, is in
// Report.Failures. Otherwise it is as Run.
func Attack(ctx context.Context, o Options) (*bench.Report, error) {
	before := look()
	report, err := run(ctx, o, "attack", (*comparison).attackEach)
	if err != nil {
		return nil, err
	}
	s := &bench.Section{Part: "left", Title: "What is left", Text: "Mounts, control groups, temporary files and processes of Pinfold's, when all sandboxes were gone; of another Pinfold's that works meanwhile, too."}
	left := before.leftWithin(goneWithin)
	for _, l := range left {
		s.Note("left: %s", l)
		report.Failures = append(report.Failures, "left on this host: "+l)
	}
	if len(left) == 0 {
		s.Note("nothing")
	}
	report.Sections = append(report.Sections, s)
	if o.Section != nil {
		o.Section(s)
	}
	return report, nil
}

// attackEach tries all attacks and makes a table of each driver's outcomes.
func (c *comparison) attackEach() {
	tables := map[string]*bench.Table{}
	table := func(of string) *bench.Table {
		if tables[of] == nil {
			tables[of] = &bench.Table{ID: "attacks", First: "a program tries to", Last: "what the host saw"}
			if of != "" {
				tables[of].ID += "_" + of
			}
		}
		return tables[of]
	}
	for o := range c.try() {
		said := c.judgeAttack(o)
		table(o.driver).Add(o.what, said)
	}
	c.done(&bench.Section{
		Part: "control", Title: "With nothing around it", Tables: []*bench.Table{table("")},
		Text: "Each attack is first seen to work where nothing holds it: one that does not work there would say nothing. It reads, changes and ends only what was made for it.",
	})
	for _, d := range c.all {
		c.done(&bench.Section{Part: d.Driver, Title: d.Driver, Text: "There is to break: " + boundaries[d.Level] + ".", Tables: []*bench.Table{table(d.Driver)}})
	}
}

// judgeAttack says what an outcome means, and counts what must not be.
func (c *comparison) judgeAttack(o outcome) string {
	switch {
	case o.err != nil && c.ctx.Err() != nil:
		return "stopped"
	case o.err != nil:
		c.fail(fmt.Errorf("not tried on %s: %s: %w", orNothing(o.driver), o.what, o.err))
		return "NOT TRIED: " + sandbox.SafeText(o.err.Error(), 200)
	case o.driver == "":
		return "works"
	case !o.through:
		return "held"
	case o.feature != "" && !c.claims(o.driver, o.feature):
		return "got through, as its report says: it does not enforce " + o.feature
	}
	c.fail(fmt.Errorf("got through on %s: %s", o.driver, o.what))
	return "GOT THROUGH"
}

func orNothing(name string) string {
	if name == "" {
		return "this host, with nothing around it"
	}
	return name
}

// claims says whether a driver's report has a feature.
func (c *comparison) claims(name, feature string) bool {
	for _, r := range c.all {
		for _, f := range r.Findings {
			if r.Driver == name && f.Answer == driver.Yes && sandbox.Satisfies(f.Feature, feature) {
				return true
			}
		}
	}
	return false
}
