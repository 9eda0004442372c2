package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pinfold/internal/policy"
	"pinfold/internal/scan"
	"pinfold/sandbox"
)

// Policy is the operator's rules: which wall a run gets, who is asked, what is refused.
type Policy struct {
	Approval Approval             `yaml:"approval"`
	Rules    []sandbox.PolicyRule `yaml:"rules"`
}

// Approval says how people are asked. A zero field was not given.
type Approval struct {
	Timeout time.Duration `yaml:"timeout"` // then the run is refused
	Pending int           `yaml:"pending"` // runs of one tenant that may wait
	Own     bool          `yaml:"own"`     // the key that asked may decide, too
}

// Spec returns the policy in the words of the API.
func (p Policy) Spec() sandbox.Policy {
	return sandbox.Policy{
		Approval: sandbox.PolicyApproval{TimeoutMS: p.Approval.Timeout.Milliseconds(), Pending: p.Approval.Pending, Own: p.Approval.Own},
		Rules:    p.Rules,
	}
}

// Ready returns the policy for use; nil where nothing is said. One without rules says how people
// are asked where a profile wants that. The configuration must be valid.
func (p Policy) Ready() (*policy.Policy, error) {
	if len(p.Rules) == 0 && p.Approval == (Approval{}) {
		return nil, nil //nolint:nilnil // there is none
	}
	return policy.New(p.Spec())
}

func (c *Config) checkPolicy() error {
	a := c.Policy.Approval
	if err := c.checkNumbers(number{"policy.approval.pending", float64(a.Pending), 1, sandbox.MaxPending}); err != nil {
		return err
	}
	if c.given("policy.approval.timeout") {
		if err := c.checkTime("policy.approval.timeout", a.Timeout, time.Millisecond, 7*24*time.Hour); err != nil {
			return err
		}
	}
	p := c.Policy.Spec()
	_, err := policy.New(p)
	if err == nil {
		err = policy.CheckFindings(p, scan.RuleIDs())
	}
	if e := sandbox.AsError(err); e != nil {
		return c.at("policy."+e.Field, "%s", e.Message).WithHint(e.Hint)
	}
	for i, r := range p.Rules {
		if err := c.checkConditions(fmt.Sprintf("policy.rules[%d].when.", i), r.When); err != nil {
			return err
		}
	}
	return nil
}

// checkConditions refuses conditions about tenants and profiles that there cannot be: such a rule
// would never match, and nobody would notice. A file without profiles may be a part of one.
func (c *Config) checkConditions(at string, w sandbox.PolicyWhen) error {
	for i, tenant := range w.Tenants {
		if !isWord(tenant) {
			return c.at(fmt.Sprintf("%stenants[%d]", at, i), "a tenant's name has 1 to 40 of a-z, 0-9 and -")
		}
	}
	for i, name := range w.Profiles {
		if _, known := c.Profiles[name]; known || len(c.Profiles) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(c.Profiles))
		return c.at(fmt.Sprintf("%sprofiles[%d]", at, i), "there is no profile %s", name).
			WithHint("the profiles are " + sandbox.SafeText(strings.Join(names, ", "), 400))
	}
	return nil
}
