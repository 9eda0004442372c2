package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds on a policy.
const (
	MaxPolicyRules  = 200
	maxPolicyValues = 100 // in one list
	maxPolicyText   = 200 // bytes of one word or reason
	maxRuleID       = 60
	MaxPending      = 10_000
)

// Validate checks all of a policy that can be known without the scan's rules. The error
// names the field.
func (p Policy) Validate() error {
	if p.Approval.TimeoutMS < 0 || p.Approval.TimeoutMS > maxTimeMS {
		return specError("approval.timeout_ms", fmt.Sprintf("%s is outside 1ms to %s", FormatQuantity(p.Approval.TimeoutMS, UnitMilliseconds), FormatQuantity(maxTimeMS, UnitMilliseconds)))
	}
	if p.Approval.Pending < 0 || p.Approval.Pending > MaxPending {
		return specError("approval.pending", fmt.Sprintf("%d is outside 1 to %d", p.Approval.Pending, MaxPending))
	}
	if len(p.Rules) > MaxPolicyRules {
		return tooLarge("rules", int64(len(p.Rules)), MaxPolicyRules)
	}
	seen := map[string]bool{}
	for i, r := range p.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		if err := checkRuleID(at+".id", r.ID); err != nil {
			return err
		}
		if seen[r.ID] {
			return specError(at+".id", "\""+r.ID+"\" is the id of a rule before it").WithHint("results and the audit log name rules by their ids: give each its own")
		}
		seen[r.ID] = true
		if err := r.When.validate(at + ".when"); err != nil {
			return err
		}
		if err := r.Then.validate(at + ".then"); err != nil {
			return err
		}
	}
	return nil
}

func checkRuleID(field, id string) error {
	if id == "" || len(id) > maxRuleID || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return specError(field, fmt.Sprintf("\"%s\" is no id for a rule", SafeText(id, maxRuleID))).
			WithHint(fmt.Sprintf("write 1 to %d of a to z, 0 to 9, -, _ and ., such as danger-in-vm", maxRuleID))
	}
	return nil
}

func (w PolicyWhen) validate(at string) error {
	if s := Severity(w.Severity); s != "" && !slices.Contains(Severities(), s) {
		return specError(at+".severity", fmt.Sprintf("no severity \"%s\"", SafeText(w.Severity, 40))).WithHint("the severities are info, notice, warning, danger, the least first")
	}
	if err := oneOf(at+".network", w.Network, "", PolicyAny, PolicyNone); err != nil {
		return err
	}
	for _, l := range []struct {
		field string
		all   []string
		words []string // empty: any
	}{
		{"findings", w.Findings, nil},
		{"kinds", w.Kinds, []string{PolicyRun, PolicyLiving}},
		{"tenants", w.Tenants, nil},
		{"keys", w.Keys, nil},
		{"languages", w.Languages, nil},
		{"hosts", w.Hosts, nil},
		{"data", w.Data, []string{PolicyMounts, PolicyInputs}},
		{"isolation", w.Isolation, levels},
		{"profiles", w.Profiles, nil},
	} {
		if err := checkValues(at+"."+l.field, l.all, l.words); err != nil {
			return err
		}
	}
	for i, name := range w.Profiles {
		if err := CheckProfileName(name); err != nil {
			return AsError(err).WithField(fmt.Sprintf("%s.profiles[%d]", at, i))
		}
	}
	for i, h := range w.Hosts {
		field := fmt.Sprintf("%s.hosts[%d]", at, i)
		canonical, err := CanonicalPattern(h)
		if err != nil {
			return AsError(err).WithField(field)
		}
		if canonical != h {
			return specError(field, "has another form: "+canonical).WithHint("write it so")
		}
	}
	return nil
}

func oneOf(field, word string, words ...string) error {
	if slices.Contains(words, word) {
		return nil
	}
	known := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	return specError(field, fmt.Sprintf("\"%s\" is not known here", SafeText(word, 60))).WithHint("write " + strings.Join(known, " or "))
}

// checkValues checks a list of conditions. One that is empty would never be so.
func checkValues(field string, all, words []string) error {
	switch {
	case all != nil && len(all) == 0:
		return specError(field, "names nothing, which is never so").WithHint("leave it out where it does not matter")
	case len(all) > maxPolicyValues:
		return tooLarge(field, int64(len(all)), maxPolicyValues)
	}
	for i, v := range all {
		at := fmt.Sprintf("%s[%d]", field, i)
		if v == "" || len(v) > maxPolicyText || SafeText(v, maxPolicyText+1) != v {
			return specError(at, fmt.Sprintf("has to have 1 to %d bytes, all of them printable", maxPolicyText))
		}
		if words != nil {
			if err := oneOf(at, v, words...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t PolicyThen) validate(at string) error {
	if t.Isolation == "" && t.Network == "" && t.Allow == nil && t.Limits == (Limits{}) && t.Ask == "" && t.Refuse == "" {
		return specError(at, "the rule does nothing").WithHint("give it one of isolation, network: none, allow, limits, ask, refuse")
	}
	if err := validateLevel(t.Isolation); err != nil {
		return AsError(err).WithField(at + ".isolation")
	}
	if err := oneOf(at+".network", t.Network, "", PolicyNone); err != nil {
		return AsError(err).WithHint(`a rule takes the network away with "none", or keeps what is within a list: allow`)
	}
	if err := t.Limits.Validate(); err != nil {
		e := AsError(err)
		return e.WithField(at + "." + e.Field)
	}
	if err := t.validateAllow(at); err != nil {
		return err
	}
	for _, reason := range []struct{ field, text string }{{"ask", t.Ask}, {"refuse", t.Refuse}} {
		if len(reason.text) > maxPolicyText || SafeText(reason.text, maxPolicyText+1) != reason.text {
			return specError(at+"."+reason.field, fmt.Sprintf("the reason has more than %d bytes, or some that cannot be printed", maxPolicyText))
		}
	}
	return nil
}

func (t PolicyThen) validateAllow(at string) error {
	switch {
	case t.Network != "" && t.Allow != nil:
		return specError(at+".allow", "there is nothing to keep of a network that is taken away").WithHint("leave out network or allow")
	case t.Allow != nil && len(t.Allow) == 0:
		return specError(at+".allow", "is empty").WithHint("network: none takes all of it away")
	case len(t.Allow) > MaxEndpoints:
		return tooLarge(at+".allow", int64(len(t.Allow)), MaxEndpoints)
	}
	for i, text := range t.Allow {
		field := fmt.Sprintf("%s.allow[%d]", at, i)
		e, err := ParseAllowed(text)
		switch {
		case err != nil:
			return AsError(err).WithField(field)
		case e.Set != "":
			return specError(field, "names a set").WithHint("write the endpoints of that set")
		case e.Address != "":
			return specError(field, "says where a name is, which network.allow does").WithHint("leave the address out")
		}
	}
	return nil
}
