package admission

import (
	"context"
	"fmt"
	"slices"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// Declared is what a sandbox that is there can reach.
type Declared struct {
	Made   sandbox.Network       // at first, as it was admitted
	Now    sandbox.Network       // within that, or what was admitted since
	Limits sandbox.NetworkLimits // also where nothing can be reached
	Fixed  bool                  // by a profile or the operator's rules: nothing beyond Made
}

// NewDeclared is that of a sandbox that is made with a declaration that was admitted.
func NewDeclared(n sandbox.Network) Declared { return Declared{Made: n, Now: n, Limits: n.Limits} }

// Anew is what another sandbox like this one is made with. A name that was declared by itself
// and taken away has nothing there that keeps it from a wildcard: such a wildcard is left out.
func (d Declared) Anew() sandbox.Network {
	n := d.Now
	n.Endpoints = slices.DeleteFunc(slices.Clone(n.Endpoints), func(e sandbox.Endpoint) bool {
		return slices.ContainsFunc(d.Made.Endpoints, func(made sandbox.Endpoint) bool {
			return made.Host != e.Host && egress.StandsFor(made.Host, d.Now.Endpoints) == e.Host
		})
	})
	switch {
	case n.None():
		return sandbox.Network{Mode: sandbox.NetworkNone}
	case !slices.ContainsFunc(n.Endpoints, sandbox.Endpoint.Ruled): // nobody would count them
		n.Limits.Requests = 0
	}
	return n
}

// Told is a declaration as those who ask are told it: where names are is the operator's.
func (p Network) Told(n sandbox.Network) sandbox.Network {
	if p.Own {
		return n
	}
	n.Endpoints = slices.Clone(n.Endpoints)
	for i := range n.Endpoints {
		n.Endpoints[i].Address = ""
	}
	return n
}

// Changed puts the operator's word over another declaration of a tenant's, for a sandbox that
// has this one. What it was made with it can always have; what is beyond that has to be
// allowed now; and a key that was narrowed gives nothing back that is not within its list.
// wider says whether anything passes then that does not pass now.
func (p Network) Changed(ctx context.Context, tenant string, d Declared, n sandbox.Network) (changed Declared, wider bool, err error) {
	if n, err = d.complete(n).Canonical(); err != nil {
		return d, false, err
	}
	operators, keys := p.lists(ctx, tenant)
	if n.Sets() {
		if n, err = p.withSets(n, slices.Concat(operators, keys)); err != nil {
			return d, false, err
		}
	}
	if err := egress.OneOwner(n); err != nil {
		return d, false, err
	}
	n.Endpoints = slices.Clone(n.Endpoints)
	for i, e := range n.Endpoints {
		field := fmt.Sprintf("network.endpoints[%d]", i)
		var lists []list
		if !egress.WithinDeclared(e, d.Made.Endpoints) {
			if d.Fixed {
				return d, false, beyondMade(field, e.Host+" is not, in that way, among what the sandbox was made with")
			}
			lists = append(lists, operators...)
		}
		if !egress.WithinDeclared(e, d.Now.Endpoints) {
			wider = true
			lists = append(lists, keys...)
		}
		if n.Endpoints[i].Address, err = addressBy(lists, e, field); err != nil {
			return d, false, err
		}
		if n.Endpoints[i].Address, err = d.address(n.Endpoints[i], field); err != nil {
			return d, false, err
		}
	}
	changed = Declared{Made: d.Made, Now: n, Limits: n.Limits.Or(d.Limits)}
	if d.Fixed && exceeds(changed.Limits, d.Made.Limits) {
		return d, false, beyondMade("network.limits", "they are higher than what the sandbox was made with")
	}
	return changed, wider || exceeds(changed.Limits, d.Limits), nil
}

// complete is a declaration with the limits that it does not name as they are.
func (d Declared) complete(n sandbox.Network) sandbox.Network {
	if n.None() {
		return n
	}
	requests := n.Limits.Requests
	n.Limits = n.Limits.Or(d.Limits)
	if !slices.ContainsFunc(n.Endpoints, sandbox.Endpoint.Ruled) { // nobody would count them
		n.Limits.Requests = requests
	}
	return n
}

// address is where an endpoint's host is: in a sandbox that is there, where it was.
func (d Declared) address(e sandbox.Endpoint, field string) (string, error) {
	at := slices.IndexFunc(d.Made.Endpoints, func(m sandbox.Endpoint) bool { return m.Host == e.Host })
	if at < 0 {
		return e.Address, nil // such a sandbox has no way there
	}
	was := d.Made.Endpoints[at].Address
	if e.Address != "" && e.Address != was {
		return "", (&sandbox.Error{
			Code: sandbox.CodeEndpointDenied, Field: field + ".address", Message: e.Host + " is at another address for the sandbox, and stays there",
		}).WithHint("leave the address out, or make another sandbox")
	}
	return was, nil
}

// beyondMade refuses what a profile, or the operator's rules, have not looked at: they see what
// a sandbox is made with.
func beyondMade(field, what string) error {
	return (&sandbox.Error{Code: sandbox.CodeEndpointDenied, Field: field, Message: what + ", which a profile or the operator's rules have decided"}).
		WithHint("make another sandbox with it")
}

func exceeds(a, b sandbox.NetworkLimits) bool {
	return a.Connections > b.Connections || a.Requests > b.Requests || a.BytesUp > b.BytesUp || a.BytesDown > b.BytesDown
}
