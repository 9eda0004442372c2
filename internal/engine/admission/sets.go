package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// expand is a list with the endpoints of each set in its place. A set that is not there
// allows nothing.
func (p Network) expand(allow []sandbox.Endpoint) (all []sandbox.Endpoint) {
	for _, e := range allow {
		if e.Set != "" {
			all = append(all, p.Sets[e.Set]...)
		} else {
			all = append(all, e)
		}
	}
	return all
}

// withSets is a declaration with the endpoints of each set in its place. Where they are is
// said by the list that allows them, as for others.
func (p Network) withSets(n sandbox.Network, lists []list) (sandbox.Network, error) {
	out := sandbox.Network{Limits: n.Limits}
	for i, e := range n.Endpoints {
		if e.Set == "" {
			out.Endpoints = append(out.Endpoints, e)
			continue
		}
		field := fmt.Sprintf("network.endpoints[%d].set", i)
		set, there := p.Sets[e.Set]
		if !there {
			return out, (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: fmt.Sprintf("there is no set \"%s\"", e.Set)}).WithHint(p.hint(lists))
		}
		for _, of := range set {
			of.Address = ""
			out.Endpoints = append(out.Endpoints, of)
		}
	}
	return out.Canonical()
}

// hint names the sets that somebody may declare.
func (p Network) hint(lists []list) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.Sets)) {
		if !slices.ContainsFunc(lists, func(l list) bool { return !l.has(p.Sets[name]) }) {
			names = append(names, `"`+name+`"`)
		}
	}
	if len(names) == 0 {
		return "declare each name by itself: there are no sets here that you may declare; a server's configuration has them (network.sets)"
	}
	return "those that you may declare are " + strings.Join(names, ", ")
}

// has says whether all of a set may be declared.
func (l list) has(set []sandbox.Endpoint) bool {
	return !slices.ContainsFunc(set, func(e sandbox.Endpoint) bool {
		e.Address = ""
		_, err := l.address(e, "")
		return err != nil
	})
}
