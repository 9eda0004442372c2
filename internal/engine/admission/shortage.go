package admission

import (
	"fmt"

	"pinfold/sandbox"
)

// shortage is what a request waits for: which resource there is not enough of, and
// whose bound it is. It tells a tenant what is its own, and of others nothing but that
// the rest is in use.
type shortage struct {
	what  string // a field of Capacity and Quota; "" when room has come meanwhile
	quota bool   // the tenant's own bound; else the server's capacity
	bound string
	own   string // what the tenant has of it
	asked string
}

// shortageOf says what a demand in that line waits for. The lock is held.
func (g *Gate) shortageOf(l *line, d Demand, bounds Capacity) shortage {
	if what := l.used.refuses(d, bounds); what != "" && g.used.refuses(d, g.capacity) == "" {
		return shortage{what, true, bounds.show(what), l.used.show(what), d.show(what)}
	}
	what := g.used.refuses(d, g.capacity)
	return shortage{what, false, g.capacity.show(what), l.used.show(what), d.show(what)}
}

// String says it after a colon.
func (s shortage) String() string {
	switch {
	case s.what == "":
		return "others wait before it"
	case s.quota:
		return fmt.Sprintf("the tenant's quota of %s is %s, its sandboxes have %s and this one needs %s", s.what, s.bound, s.own, s.asked)
	}
	return fmt.Sprintf("capacity.%s is %s, this tenant's sandboxes have %s of it, and what is free is less than the %s that this one needs", s.what, s.bound, s.own, s.asked)
}

// field is the field of the request that asks for it, "" for none.
func (s shortage) field() string {
	return map[string]string{"memory": "limits.memory_bytes", "cpus": "limits.cpus"}[s.what]
}

// advice is what helps. Limits count while a sandbox lives, whatever it does.
func (s shortage) advice() sandbox.Advice {
	raise := sandbox.Config("capacity." + s.what)
	switch {
	case s.what == "":
		return sandbox.Advise("come back later")
	case s.quota:
		raise = sandbox.Text("the tenant's quota")
	}
	if s.field() != "" {
		return sandbox.Advise("come back later, end sandboxes that are idle (their limits count as well), ask for less, or raise %s", raise)
	}
	return sandbox.Advise("come back later, end sandboxes that are not needed, or raise %s", raise)
}

func show(what string, sandboxes, runs int, memory int64, cpus float64) string {
	switch what {
	case "sandboxes":
		return fmt.Sprint(sandboxes)
	case "runs":
		return fmt.Sprint(runs)
	case "memory":
		return sandbox.FormatQuantity(memory, sandbox.UnitBytes)
	case "cpus":
		return fmt.Sprintf("%.4g", cpus)
	}
	return ""
}

func (c Capacity) show(what string) string {
	return show(what, c.Sandboxes, c.Runs, c.MemoryBytes, c.CPUs)
}

func (l Load) show(what string) string { return show(what, l.Sandboxes, l.Runs, l.MemoryBytes, l.CPUs) }

func (d Demand) show(what string) string { return show(what, 1, 1, d.MemoryBytes, d.CPUs) }
