package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pinfold/internal/bench"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// ladder asks each driver what it can do here, and says what it would take to have those
// that cannot.
func (c *comparison) ladder() error {
	names := c.engine.Drivers()
	for _, name := range c.o.Only {
		if !slices.Contains(names, name) && c.o.LeftOut[name] == "" {
			return &sandbox.Error{
				Code: sandbox.CodeDriverUnknown, Field: "only", Message: fmt.Sprintf("no driver \"%s\"", sandbox.SafeText(name, 60)),
				Hint: "the drivers are " + strings.Join(names, ", "),
			}
		}
	}
	s := &bench.Section{Part: "ladder", Title: "The ladder", Text: "What each driver can enforce on this machine, from the weakest to the strongest."}
	took := map[string]time.Duration{}
	var missing []string
	for _, name := range names {
		if !c.wanted(name) {
			continue
		}
		c.o.Progress("asking " + name + " what it can enforce here")
		begun := time.Now()
		r, err := c.engine.Report(c.ctx, name)
		switch {
		case err != nil:
			return err
		case r.Blocked != nil:
			missing = append(missing, name+" cannot work here: "+r.Blocked.Message+hint(r.Blocked))
		default:
			took[name] = time.Since(begun)
			c.all = append(c.all, r)
		}
	}
	for name, why := range c.o.LeftOut {
		if c.wanted(name) {
			missing = append(missing, name+" is left out: "+why)
		}
	}
	slices.SortStableFunc(c.all, func(a, b driver.Report) int {
		return slices.Index(sandbox.IsolationLevels(), a.Level) - slices.Index(sandbox.IsolationLevels(), b.Level)
	})
	c.enforced(s)
	s.Tables = append(s.Tables, c.setUp(took))
	slices.Sort(missing)
	for _, line := range missing {
		s.Note("%s", line)
	}
	c.done(s)
	if len(c.all) == 0 {
		return &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "no driver works on this machine", Hint: "run pinfold doctor to see what it lacks"}
	}
	return nil
}

// wanted says whether a driver is to be compared.
func (c *comparison) wanted(name string) bool {
	return len(c.o.Only) == 0 || slices.Contains(c.o.Only, name)
}

func hint(e *sandbox.Error) string {
	if e.Hint == "" {
		return ""
	}
	return ". To have it: " + e.Hint
}

// enforced is the table of what each driver says of itself.
func (c *comparison) enforced(s *bench.Section) {
	t := &bench.Table{ID: "ladder", First: "driver", Columns: []bench.Column{
		{Key: "enforced", Head: "enforced", Unit: bench.UnitCount}, {Key: "not_enforced", Head: "not enforced", Unit: bench.UnitCount},
	}, Last: "what there is to break"}
	for _, r := range c.all {
		var missing []string
		for _, f := range r.Findings {
			if f.Answer != driver.Yes {
				missing = append(missing, f.Feature)
			}
		}
		t.Add(r.Driver, boundaries[r.Level], float64(len(r.Findings)-len(missing)), float64(len(missing)))
		if len(missing) > 0 {
			s.Note("%s does not enforce %s", r.Driver, strings.Join(missing, ", "))
		}
	}
	s.Tables = append(s.Tables, t)
}

// boundaries say what a program has to break, for each level of isolation.
var boundaries = map[string]string{
	sandbox.LevelProcess:   "rules for a process of the host's own, which its kernel holds",
	sandbox.LevelNamespace: "namespaces, and the rules: a hole in the host's kernel",
	sandbox.LevelContainer: "a container of another engine's: a hole in the host's kernel, or in the engine",
	sandbox.LevelKernel:    "a kernel in user space, and then what holds that",
	sandbox.LevelVM:        "a virtual machine's kernel, then the machine's own process, and then what holds that",
}

// needs say what there must be, for each level.
var needs = map[string]string{
	sandbox.LevelProcess:   "nothing",
	sandbox.LevelNamespace: "nothing; root, or namespaces for users",
	sandbox.LevelContainer: "an engine that runs, an image in it, root",
	sandbox.LevelKernel:    "one program, runsc; root",
	sandbox.LevelVM:        "two packages, QEMU and a kernel; root",
}

// setUp is the table of what it takes to have a driver.
func (c *comparison) setUp(took map[string]time.Duration) *bench.Table {
	t := &bench.Table{
		ID: "setup", Title: "What it takes to have it, and how long the first look at the host took, in which a driver tries whether it works: one that boots machines boots its first.",
		First: "driver", Columns: []bench.Column{{Key: "first_ms", Head: "first look", Unit: bench.UnitMS}}, Last: "what must be there",
	}
	for _, r := range c.all {
		t.Add(r.Driver, needs[r.Level], float64(took[r.Driver])/float64(time.Millisecond))
	}
	return t
}
