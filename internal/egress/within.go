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
					(len(a.Paths) == 0 || path != all && slices.ContainsFunc(a.Paths, func(p string) bool { return covers(p, path) }))
			})
			if at < 0 {
				return nil
			}
			by = append(by, allowed[at])
		}
	}
	return by
}

// all stands for every method, or every path.
const all = ""

func orAll(list []string) []string {
	if len(list) == 0 {
		return []string{all}
	}
	return list
}

// covers says whether a path of an endpoint's stands for every path that another one stands
// for. What * stands for in the narrow one only * in the wide one can, since no literal of
// it has that character: so the narrow one is read like a path.
func covers(wide, narrow string) bool {
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
