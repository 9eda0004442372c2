package egress

import (
	"slices"
	"strings"

	"pinfold/sandbox"
)

// Within returns those of the allowed endpoints which together let every request pass that
// e lets pass; none where that cannot be proved. The host and the port are not looked at.
//
// Each method with each path has to be within a single one of them. That takes no request
// for allowed which is not; a union that no single one covers it takes for forbidden.
func Within(e sandbox.Endpoint, allowed []sandbox.Endpoint) (by []sandbox.Endpoint) {
	for _, method := range orAll(e.Methods) {
		for _, path := range orAll(e.Paths) {
			at := slices.IndexFunc(allowed, func(a sandbox.Endpoint) bool {
				return (len(a.Methods) == 0 || slices.Contains(a.Methods, method)) &&
					(len(a.Paths) == 0 || path != all && slices.ContainsFunc(a.Paths, func(p string) bool { return Covers(p, path) }))
			})
			if at < 0 {
				return nil
			}
			by = append(by, allowed[at])
		}
	}
	return by
}

// StandsFor is the declared host that stands for a name or a wildcard: it itself, or else the
// longest wildcard; "" where there is none. Both must be canonical.
func StandsFor(host string, declared []sandbox.Endpoint) string { return standsFor(host, declared) }

// all stands for every method, or every path.
const all = ""

func orAll(list []string) []string {
	if len(list) == 0 {
		return []string{all}
	}
	return list
}

// Covers says whether a path of an endpoint's stands for every path that another one stands
// for. What * stands for in the narrow one only * in the wide one can, since no literal of
// it has that character: so the narrow one is read like a path.
func Covers(wide, narrow string) bool {
	front, below := strings.CutSuffix(wide, sandbox.Below)
	inner, narrowBelow := strings.CutSuffix(narrow, sandbox.Below)
	want, have := segmentsOf(front), segmentsOf(inner)
	switch {
	case len(have) < len(want), !below && (narrowBelow || len(have) > len(want)):
		return false
	case below && !narrowBelow && strings.Trim(strings.Join(have[len(want):], ""), "*") == "": // it may be a slash at the end, see matches
		return false
	}
	for i, w := range want {
		if !matchesSegment(w, have[i]) {
			return false
		}
	}
	return true
}

// segmentsOf are those of a path of an endpoint's, without Below.
func segmentsOf(front string) []string {
	if front == "" {
		return nil
	}
	return strings.Split(front[1:], "/")
}

// WithinDeclared says whether an endpoint lets nothing pass, at any of its ports, that a
// declaration of its host does not: no request, no request with a secret, and nothing unread
// that is read there. Both are canonical.
func WithinDeclared(e sandbox.Endpoint, declared []sandbox.Endpoint) bool {
	return !slices.ContainsFunc(e.Ports, func(port int) bool {
		var some []sandbox.Endpoint
		for _, d := range declared {
			if d.Host == e.Host && slices.Contains(d.Ports, port) && (e.Secret == "" || e.Secret == d.Secret) &&
				(e.Ruled() || !d.Ruled()) && (e.Address == "" || e.Address == d.Address) {
				some = append(some, d)
			}
		}
		return len(Within(e, some)) == 0
	})
}
