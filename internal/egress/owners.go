package egress

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"

	"pinfold/sandbox"
)

// OneOwner refuses wildcards below which anybody can have a name, as the Public Suffix List
// has them. The hosts of a declaration must be canonical.
func OneOwner(n sandbox.Network) error {
	for i, e := range n.Endpoints {
		below, many := strings.CutPrefix(e.Host, sandbox.Wildcard)
		if !many {
			continue
		}
		if suffix, _ := publicsuffix.PublicSuffix(below); suffix == below {
			return &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: fmt.Sprintf("network.endpoints[%d].host", i),
				Message: fmt.Sprintf("\"%s\" stands for names of many owners: anybody can have one below %s", e.Host, below),
				Hint:    "declare the names that are needed, or a wildcard below one of them",
			}
		}
	}
	return nil
}
