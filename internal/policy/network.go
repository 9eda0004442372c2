package policy

import (
	"slices"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// leave is what of declared endpoints is within allowed ones.
//
// The most narrow declaration that stands for a name speaks for it alone. So a wider one
// gives nothing to a name that another stands for, and a wildcard stays only where it lets
// nothing pass at the names whose own declarations go.
func leave(declared, allowed []sandbox.Endpoint) (left []sandbox.Endpoint) {
	for _, e := range declared {
		for _, kept := range common(e, allowed) {
			if egress.StandsFor(kept.Host, declared) == e.Host {
				left = append(left, kept)
			}
		}
	}
	for all := 0; all != len(left); { // what goes may leave its names to a wider one
		all = len(left)
		names := map[string][]sandbox.Endpoint{} // by the wildcard that is left to stand for them
		for _, d := range declared {
			if by := egress.StandsFor(d.Host, left); by != d.Host {
				names[by] = append(names[by], d)
			}
		}
		left = slices.DeleteFunc(left, func(kept sandbox.Endpoint) bool {
			return slices.ContainsFunc(names[kept.Host], func(d sandbox.Endpoint) bool {
				there := kept
				there.Host = d.Host
				return d.Address != "" || !egress.WithinDeclared(there, declared)
			})
		})
	}
	return left
}

// common is what of an endpoint is within allowed ones: its hosts, ports, methods and paths
// that one of them has, too. What cannot be proved to be within one is left out. Its secret
// and its address stay.
func common(e sandbox.Endpoint, allowed []sandbox.Endpoint) (both []sandbox.Endpoint) {
	for _, port := range e.Ports {
		var some []sandbox.Endpoint // allowed at that port, with the host that both have
		for _, a := range allowed {
			if host := commonHost(e.Host, a.Host); host != "" && slices.Contains(a.Ports, port) {
				a.Host = host
				some = append(some, a)
			}
		}
		one := e
		one.Ports = []int{port}
		if len(egress.Within(e, slices.DeleteFunc(slices.Clone(some), func(a sandbox.Endpoint) bool { return a.Host != e.Host }))) > 0 {
			both = append(both, one) // all of it
			continue
		}
		for _, a := range some {
			methods, ok := commonOf(e.Methods, a.Methods, func(wide, narrow string) bool { return wide == narrow })
			paths, some := commonOf(e.Paths, a.Paths, egress.Covers)
			if ok && some {
				one.Host, one.Methods, one.Paths = a.Host, methods, paths
				both = append(both, one)
			}
		}
	}
	return both
}

// commonHost is the narrower of two hosts or patterns, or "" where neither is within the
// other.
func commonHost(a, b string) string {
	switch {
	case a == b, sandbox.MatchHost(b, a):
		return a
	case sandbox.MatchHost(a, b):
		return b
	}
	return ""
}

// commonOf is what two lists have in common, of which an empty one is everything. some is
// false where that is nothing.
func commonOf(a, b []string, covers func(wide, narrow string) bool) (both []string, some bool) {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b), true
	}
	for _, x := range a {
		for _, y := range b {
			switch {
			case covers(y, x):
				both = append(both, x)
			case covers(x, y):
				both = append(both, y)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both), len(both) > 0
}
