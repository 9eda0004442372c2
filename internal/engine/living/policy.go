package living

import (
	"cmp"
	"context"
	"fmt"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// governed does with a complete request what the operator's rules say. Nobody is asked about
// a sandbox that stays: what a person would have to know is what will run in it.
func (mg *Manager) governed(ctx context.Context, tenant string, c sandbox.Create, from *origin) (sandbox.Create, *sandbox.PolicyResult, error) {
	if mg.rules == nil {
		return c, nil, nil
	}
	rules := mg.rules()
	least := cmp.Or(c.Isolation, sandbox.LevelNamespace)
	if c.Driver != sandbox.DriverAuto {
		least = cmp.Or(c.Isolation, mg.level(c.Driver), sandbox.LevelNamespace)
	}
	o := rules.Judge(policy.Facts{
		Kind: sandbox.PolicyLiving, Tenant: tenant, Key: records.KeyOf(ctx), Isolation: least, Endpoints: c.Network.Endpoints, Limits: c.Limits,
		Mounts: len(c.Mounts) > 0, Inputs: from != nil || !c.Packages.Empty(), Profile: c.Profile, Seen: policy.Unseen(),
	}, policy.Asked{Isolation: c.Isolation, Least: least, Network: c.Network, Limits: c.Limits})
	switch {
	case o.Refused != nil:
		return c, o.Result, o.Refused
	case len(o.Asks) > 0:
		return c, o.Result, &sandbox.Error{
			Code: sandbox.CodePolicyRefused, Message: "the operator has a person asked about it, which is for runs only: " + o.Asks[0], Hint: "run the program instead (pinfold run)",
		}
	case o.Changed && from.goesOn():
		return c, o.Result, &sandbox.Error{
			Code: sandbox.CodePolicyRefused, Message: fmt.Sprintf("a machine that goes on is as it was, and the operator's rule %s would change it", changing(o.Result)), Hint: "create a new sandbox",
		}
	}
	c.Isolation, c.Network, c.Limits = o.Asked.Isolation, o.Asked.Network, o.Asked.Limits
	if c.Driver != sandbox.DriverAuto && c.Isolation != "" && !sandbox.LevelAtLeast(mg.level(c.Driver), c.Isolation) && o.Changed {
		c.Driver = sandbox.DriverAuto // the one that was named is too weak
	}
	return c, o.Result, nil
}

// changing is the first rule that changed something.
func changing(r *sandbox.PolicyResult) string {
	for _, m := range r.Rules {
		if len(m.Changes) > 0 {
			return m.Rule
		}
	}
	return ""
}

// most is the most that requests for a sandbox like it may ask for.
func (s *Sandbox) most() admission.Most {
	m := s.manager.policy.Most(s.request.Profile, s.info.Policy)
	if s.request.Profile != "" { // whose commands may have no more than it (profile.Command)
		m = m.And(s.request.Limits, "the sandbox")
	}
	return m
}

// allows holds what a command asks for against the limits that the operator's rules have
// set for the sandbox.
func (s *Sandbox) allows(c sandbox.Command) error {
	p := s.Info().Policy
	if p == nil {
		return nil
	}
	return admission.Policy{Max: p.Limits}.Command(c)
}
