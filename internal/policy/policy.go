// Package policy decides by an operator's rules which wall a run gets: it looks at facts
// about a request and at what a scan saw, and makes the request stronger held, has a person
// asked, or refuses it. It is pure: it knows no engine and no clock, and the same facts
// under the same policy have the same outcome.
//
// Nothing here makes a request weaker: the level of isolation only rises, limits only
// fall, and of the network only something is taken away.
package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"pinfold/internal/language"
	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Policy is a policy that is ready for use. A nil one has no rules. It is safe for
// concurrent use.
//
// There can be one without rules, too: it says how people are asked where a profile wants
// that (With).
type Policy struct {
	rules    []rule
	approval sandbox.PolicyApproval
	digest   string
}

// rule is one rule, with what its list of endpoints says.
type rule struct {
	sandbox.PolicyRule

	allow []sandbox.Endpoint
	// because is why it matches before anything that it is about; of a profile's.
	because []string
}

// New returns a policy. The error names the field that is wrong.
func New(p sandbox.Policy) (*Policy, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	made := &Policy{approval: p.Approval, digest: hex.EncodeToString(sum[:])}
	made.approval.TimeoutMS = cmp.Or(p.Approval.TimeoutMS, sandbox.DefaultApprovalMS)
	made.approval.Pending = cmp.Or(p.Approval.Pending, sandbox.DefaultPending)
	for i, r := range p.Rules {
		one := rule{PolicyRule: r}
		if one.When.Languages, err = languages(r.When.Languages, fmt.Sprintf("rules[%d].when.languages", i)); err != nil {
			return nil, err
		}
		for _, text := range r.Then.Allow {
			e, err := sandbox.ParseAllowed(text)
			if err != nil {
				return nil, err
			}
			one.allow = append(one.allow, e)
		}
		made.rules = append(made.rules, one)
	}
	return made, nil
}

// languages are the own names of languages: those by which requests have them.
func languages(list []string, at string) (names []string, err error) {
	for i, name := range list {
		l, err := language.Find(name)
		if err != nil {
			return nil, sandbox.AsError(err).WithField(fmt.Sprintf("%s[%d]", at, i))
		}
		names = append(names, l.Name)
	}
	return names, nil
}

// CheckFindings refuses rules about findings of which the scan, whose rules have these ids,
// has none: such a rule would never match, and nobody would notice.
func CheckFindings(p sandbox.Policy, ids []string) error {
	for i, r := range p.Rules {
		for j, f := range r.When.Findings {
			if slices.ContainsFunc(ids, func(id string) bool { return matches(f, id) }) {
				continue
			}
			e := &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: fmt.Sprintf("rules[%d].when.findings[%d]", i, j),
				Message: fmt.Sprintf("the scan has no rule \"%s\"", sandbox.SafeText(f, 60)), Hint: "pinfold scan --rules lists them",
			}
			if near := nearest.Word(f, ids); near != "" {
				e.Hint = fmt.Sprintf("did you mean %q? pinfold scan --rules lists them", near)
			}
			return e
		}
	}
	return nil
}

// With is the policy and one more rule behind those of the operator, for every request that
// it is asked about; where the rule is nil, the policy itself. The digest stays the operator's.
func (p *Policy) With(r *sandbox.PolicyRule) *Policy {
	if r == nil {
		return p
	}
	if p == nil {
		p = unruled
	}
	more := *p
	more.rules = append(slices.Clone(p.rules), rule{PolicyRule: *r, because: []string{"it names the profile"}})
	return &more
}

// unruled is the policy of an operator who has written none.
var unruled = func() *Policy {
	p, err := New(sandbox.Policy{})
	if err != nil {
		panic(err) // the author's mistake
	}
	return p
}()

// Empty says that there are no rules.
func (p *Policy) Empty() bool { return p == nil || len(p.rules) == 0 }

// Digest tells one policy from another: SHA-256, hexadecimal.
func (p *Policy) Digest() string { return p.digest }

// Rules are the ids of the rules, in their order.
func (p *Policy) Rules() (ids []string) {
	for _, r := range p.rules {
		ids = append(ids, r.ID)
	}
	return ids
}

// Timeout is how long a person has to decide, Pending how many runs of a tenant may wait
// for that, and Own says that the key that asked may decide, too.
func (p *Policy) Timeout() time.Duration {
	return time.Duration(p.approval.TimeoutMS) * time.Millisecond
}

// Pending is how many runs of one tenant may wait for a person.
func (p *Policy) Pending() int { return p.approval.Pending }

// Own says that the key that asked for a run may decide on it.
func (p *Policy) Own() bool { return p.approval.Own }

// Facts are what rules look at.
type Facts struct {
	Kind      string             `json:"kind"` // sandbox.PolicyRun or sandbox.PolicyLiving
	Tenant    string             `json:"tenant"`
	Key       string             `json:"key,omitempty"`
	Language  string             `json:"language,omitempty"`
	Profile   string             `json:"profile,omitempty"`
	Isolation string             `json:"isolation"` // the least level that was asked for
	Endpoints []sandbox.Endpoint `json:"endpoints,omitempty"`
	Limits    sandbox.Limits     `json:"limits,omitzero"`
	Mounts    bool               `json:"mounts,omitempty"`
	Inputs    bool               `json:"inputs,omitempty"`
	// Seen is what a scan saw; nil: nobody has looked.
	Seen *Seen `json:"-"`
}

// Seen is what a scan saw in a program.
type Seen struct {
	Findings []Finding `json:"findings,omitempty"` // each kind once
	// All says that the program could not be looked at, or not at all of it: it is taken to
	// have every finding.
	All bool `json:"all,omitempty"`
}

// Finding is a finding without its place.
type Finding struct {
	Rule     string           `json:"rule"`
	Severity sandbox.Severity `json:"severity"`
}

// Unseen is a program at which nobody could look.
func Unseen() *Seen { return &Seen{All: true} }

// See is what a list of findings says, of which there may be more than it has (unread).
func See(findings []sandbox.Finding, unread bool) *Seen {
	s := &Seen{All: unread}
	for _, f := range findings {
		one := Finding{f.Rule, f.Severity}
		if !slices.Contains(s.Findings, one) {
			s.Findings = append(s.Findings, one)
		}
	}
	slices.SortStableFunc(s.Findings, func(a, b Finding) int { return rank(b.Severity) - rank(a.Severity) })
	return s
}

// Worst is the highest severity, or "".
func (s *Seen) Worst() sandbox.Severity {
	switch {
	case s == nil:
		return ""
	case s.All:
		return sandbox.SeverityDanger
	case len(s.Findings) == 0:
		return ""
	}
	return s.Findings[0].Severity
}

func rank(s sandbox.Severity) int { return slices.Index(sandbox.Severities(), s) }

// Looks says whether a rule needs to know what a scan sees in the program of these facts.
func (p *Policy) Looks(f Facts) bool {
	if p == nil {
		return false
	}
	return slices.ContainsFunc(p.rules, func(r rule) bool {
		if !r.looks() {
			return false
		}
		_, matched := r.others(f)
		return matched
	})
}

// MayAsk says whether a person could be asked about a run of these facts, whatever a scan
// sees.
func (p *Policy) MayAsk(f Facts) bool {
	if p == nil {
		return false
	}
	return slices.ContainsFunc(p.rules, func(r rule) bool {
		_, matched := r.others(f)
		return matched && r.Then.Ask != ""
	})
}

func (r rule) looks() bool { return r.When.Severity != "" || len(r.When.Findings) > 0 }

// match says whether a rule matches, and why.
func (r rule) match(f Facts) (because []string, matched bool) {
	because, matched = r.others(f)
	if !matched || !r.looks() {
		return because, matched
	}
	switch {
	case f.Seen == nil:
		return nil, false
	case f.Seen.All:
		return append([]string{"not scanned"}, because...), true
	}
	var found []string
	for _, one := range f.Seen.Findings {
		if (r.When.Severity == "" || rank(one.Severity) >= rank(sandbox.Severity(r.When.Severity))) && anyMatches(r.When.Findings, one.Rule) {
			found = append(found, fmt.Sprintf("finding %s (%s)", one.Rule, one.Severity))
		}
	}
	return append(found, because...), len(found) > 0
}

// others are a rule's conditions but those about findings.
func (r rule) others(f Facts) (because []string, matched bool) {
	w := r.When
	because = slices.Clone(r.because)
	if len(w.Languages) > 0 && f.Kind == sandbox.PolicyLiving { // nobody knows of which what will run in it is
		because, w.Languages = append(because, "any language"), nil
	}
	is := func(field, value string, list []string) bool {
		if len(list) == 0 {
			return true
		}
		because = append(because, field+" "+value)
		return slices.Contains(list, value)
	}
	if !is("kind", f.Kind, w.Kinds) || !is("tenant", f.Tenant, w.Tenants) || !is("key", f.Key, w.Keys) || !is("language", f.Language, w.Languages) ||
		!is("isolation", f.Isolation, w.Isolation) || !is("profile", f.Profile, w.Profiles) {
		return nil, false
	}
	more, matched := reachAndData(w, f)
	return append(because, more...), matched
}

// reachAndData are the conditions about what is reached and what goes in.
func reachAndData(w sandbox.PolicyWhen, f Facts) (because []string, matched bool) {
	if w.Network != "" {
		if (w.Network == sandbox.PolicyAny) != (len(f.Endpoints) > 0) {
			return nil, false
		}
		because = append(because, "network "+w.Network)
	}
	if len(w.Hosts) > 0 {
		at := slices.IndexFunc(f.Endpoints, func(e sandbox.Endpoint) bool {
			return slices.ContainsFunc(w.Hosts, func(h string) bool { return reaches(e.Host, h) })
		})
		if at < 0 {
			return nil, false
		}
		because = append(because, "host "+f.Endpoints[at].Host)
	}
	if len(w.Data) > 0 {
		switch {
		case f.Mounts && slices.Contains(w.Data, sandbox.PolicyMounts):
			because = append(because, "mounts")
		case f.Inputs && slices.Contains(w.Data, sandbox.PolicyInputs):
			because = append(because, "inputs")
		default:
			return nil, false
		}
	}
	return because, true
}

// reaches says whether what was declared may reach a host, or one that a pattern is for.
func reaches(declared, host string) bool {
	return declared == host || sandbox.MatchHost(host, declared) || sandbox.MatchHost(declared, host)
}

// matches says whether an id is what a pattern stands for.
func matches(pattern, id string) bool {
	front, open := strings.CutSuffix(pattern, "*")
	return pattern == id || open && strings.HasPrefix(id, front)
}

func anyMatches(patterns []string, id string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return matches(p, id) })
}
