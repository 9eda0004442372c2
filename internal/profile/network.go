package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// network is what a request reaches: what the profile has, unless the request declares some
// of it, or "none".
func (n narrowing) network(asked sandbox.Network) (sandbox.Network, error) {
	if asked.IsZero() {
		return n.p.Network, nil
	}
	limits := asked.Limits
	asked, err := asked.Canonical()
	if err != nil || asked.None() {
		return asked, err
	}
	for i := range asked.Endpoints {
		field := fmt.Sprintf("network.endpoints[%d]", i)
		if err := n.below(field, asked.Endpoints[i], asked.Endpoints); err != nil {
			return asked, err
		}
		if err := n.endpoint(field, &asked.Endpoints[i]); err != nil {
			return asked, err
		}
	}
	fixed, own := n.p.Network.Limits, &asked.Limits
	for _, l := range []struct {
		field       string
		asked, most int64
		to          *int64
	}{
		{"connections", limits.Connections, fixed.Connections, &own.Connections},
		{"requests", limits.Requests, fixed.Requests, &own.Requests},
		{"bytes_up", limits.BytesUp, fixed.BytesUp, &own.BytesUp},
		{"bytes_down", limits.BytesDown, fixed.BytesDown, &own.BytesDown},
	} {
		field := "network.limits." + l.field
		switch {
		case l.most != 0 && l.asked > l.most:
			return asked, n.refuse(field, fmt.Sprint(l.asked), fmt.Sprint(l.most), sandbox.Set(field, l.most))
		case *l.to != 0: // else nobody counts it
			*l.to = cmp.Or(l.asked, l.most, *l.to)
		}
	}
	return asked, nil
}

// endpoint refuses an endpoint, which is canonical, that is not within the profile's, and
// puts it where the profile says that it is.
func (n narrowing) endpoint(field string, e *sandbox.Endpoint) error {
	if e.Set != "" {
		return n.unreachable(field+".set", e)
	}
	by := egress.StandsFor(e.Host, n.p.Network.Endpoints) // and nothing wider: see below
	for _, port := range e.Ports {
		here := among(n.p.Network.Endpoints, func(a sandbox.Endpoint) bool { return a.Host == by && slices.Contains(a.Ports, port) })
		alike := among(here, func(a sandbox.Endpoint) bool { return readsAsMuch(a, *e) })
		switch {
		case len(here) == 0:
			return n.unreachable(field+".host", e)
		case len(alike) == 0 && e.Secret != "":
			return n.unreachable(field+".secret", e)
		case len(alike) == 0 || len(egress.Within(*e, alike)) == 0:
			return n.unreachable(field, e)
		}
	}
	at := slices.IndexFunc(n.p.Network.Endpoints, func(a sandbox.Endpoint) bool { return a.Host == e.Host })
	address := ""
	if at >= 0 {
		address = n.p.Network.Endpoints[at].Address
	}
	if e.Address != "" && e.Address != address {
		return n.unreachable(field+".address", e)
	}
	e.Address = address
	return nil
}

// below refuses a wildcard that would stand for names which the profile declares by
// themselves, or by a longer wildcard, and the request does not: they are held to that, and
// would be held to the wildcard.
func (n narrowing) below(field string, e sandbox.Endpoint, asked []sandbox.Endpoint) error {
	for _, a := range n.p.Network.Endpoints {
		lost := sandbox.IsPattern(e.Host) && a.Host != e.Host && sandbox.MatchHost(e.Host, a.Host)
		if lost && !slices.ContainsFunc(asked, func(other sandbox.Endpoint) bool { return other.Host == a.Host }) {
			return n.unreachable(field+".host", &e)
		}
	}
	return nil
}

func among(list []sandbox.Endpoint, f func(sandbox.Endpoint) bool) (some []sandbox.Endpoint) {
	for _, e := range list {
		if f(e) {
			some = append(some, e)
		}
	}
	return some
}

// readsAsMuch says whether what passes by e is looked at as much as by a, and gets no other
// secret. An endpoint without methods, paths and a secret lets through what nobody reads.
func readsAsMuch(a, e sandbox.Endpoint) bool {
	if e.Secret == "" {
		return e.Ruled() || !a.Ruled()
	}
	return e.Secret == a.Secret
}

func (n narrowing) unreachable(field string, e *sandbox.Endpoint) error {
	if n.p.Network.None() {
		return n.refuse(field, e.String(), "no network", sandbox.Omit("network"))
	}
	return n.refuse(field, e.String(), strings.Join(reach(n.p.Network), ", "), sandbox.Set("network", n.p.Network))
}

// reach are the endpoints of a network as people write them.
func reach(n sandbox.Network) []string {
	all := []string{}
	for _, e := range n.Endpoints {
		all = append(all, e.Words()...)
	}
	return all
}
