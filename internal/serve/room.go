package serve

import (
	"fmt"

	"pinfold/internal/config"
	"pinfold/internal/probe"
	"pinfold/sandbox"
)

// room asks whether the host can carry what the configuration promises: what is
// too little for it, and what may be.
func room(c *config.Config, o Options) []probe.Finding {
	if o.Room == nil {
		return nil
	}
	full := capacity(c.Capacity).WithDefaults()
	each := c.Limits.Default.WithDefaults()
	d := probe.Demand{
		Sandboxes: full.Sandboxes, Processes: each.Processes,
		Memory: min(full.MemoryBytes, int64(full.Sandboxes)*each.MemoryBytes),
	}
	for _, p := range c.Pools { // those that wait are beside the capacity
		d.Sandboxes += p.Min
	}
	return append(contradictions(c), o.Room(d)...)
}

// contradictions are bounds of the capacity that end long before another one that
// was given, for sandboxes of the default size: whoever set one of them may not
// think of it when sandboxes that do nothing are refused.
func contradictions(c *config.Config) []probe.Finding {
	full := capacity(c.Capacity).WithDefaults()
	each := c.Limits.Default.WithDefaults()
	var found []probe.Finding
	for _, bound := range []struct {
		key, unit string
		given     bool
		fits      int
		enough    string
	}{
		{"cpus", "CPUs", c.Capacity.CPUs > 0, int(full.CPUs / each.CPUs), fmt.Sprintf("%g", each.CPUs*float64(full.Sandboxes))},
		{"memory", "memory", c.Capacity.Memory > 0, int(full.MemoryBytes / each.MemoryBytes), sandbox.FormatQuantity(int64(full.Sandboxes)*each.MemoryBytes, sandbox.UnitBytes)},
	} {
		if !bound.given || bound.fits >= full.Sandboxes {
			continue
		}
		found = append(found, probe.Finding{
			Code: "capacity." + bound.key + ".sandboxes", Severity: probe.Info, Answer: probe.Yes,
			Title:  "capacity." + bound.key + " ends before capacity.sandboxes",
			Probed: fmt.Sprintf("capacity.%s is used up by %d sandboxes of the default size, idle or not; capacity.sandboxes allows %d", bound.key, bound.fits, full.Sandboxes),
			Means:  "limits are added up, used or not",
			Fix:    fmt.Sprintf("for %d of them, capacity.%s: %s; or say capacity.sandboxes: %d", full.Sandboxes, bound.key, bound.enough, bound.fits),
		})
	}
	return found
}

// checkRoom is what Check says of it. Only what is certainly too little is not well.
func checkRoom(c *config.Config, o Options) []Finding {
	var found []Finding
	for _, f := range room(c, o) {
		one := Finding{What: "capacity: " + f.Title, OK: f.Severity != probe.Warning, Detail: f.Probed, Fix: f.Fix}
		if f.Means != "" {
			one.Detail += "; " + f.Means
		}
		found = append(found, one)
	}
	return found
}

// warnOfRoom writes into the log what is too little, when the server starts.
func (s *server) warnOfRoom() {
	for _, f := range room(s.config, s.o) {
		switch f.Severity {
		case probe.Warning:
			s.log.Warn("the host cannot carry the capacity: "+f.Title, "found", f.Probed, "means", f.Means, "fix", f.Fix)
		case probe.Info:
			s.log.Info("capacity: "+f.Title, "found", f.Probed, "means", f.Means, "fix", f.Fix)
		case probe.OK, probe.Problem:
		}
	}
}
