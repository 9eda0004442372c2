package policy

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// Asked is what of a request a policy can change.
type Asked struct {
	// Isolation is the least level; the request's may be empty, and is then Least.
	Isolation string
	Least     string
	Network   sandbox.Network // canonical, and without sets
	Limits    sandbox.Limits  // a zero field: there is no bound of its own
}

// Outcome is what a policy says about one request.
type Outcome struct {
	Asked  Asked
	Result *sandbox.PolicyResult // nil without rules
	Asks   []string              // the reasons for which a person is asked
	// Refused is why nothing is made, or nil.
	Refused *sandbox.Error
	Changed bool
}

// Judge applies every rule that matches, in their order. Rules look at the facts as they
// were, whatever a rule before them changed.
func (p *Policy) Judge(f Facts, a Asked) Outcome {
	o := Outcome{Asked: a}
	if p.Empty() {
		return o
	}
	o.Result = &sandbox.PolicyResult{Digest: p.digest, Rules: []sandbox.PolicyMatch{}}
	for _, r := range p.rules {
		because, matched := r.match(f)
		if !matched {
			continue
		}
		m := sandbox.PolicyMatch{Rule: r.ID, Because: because, Ask: r.Then.Ask, Refuse: r.Then.Refuse}
		change := func(field, from, to string) {
			m.Changes = append(m.Changes, sandbox.PolicyChange{Field: field, From: from, To: to})
			o.Changed = true
		}
		o.raise(r, change)
		if err := o.narrow(r, change); err != nil && m.Refuse == "" { // it cannot be said more narrowly: nothing of it
			m.Refuse = "what is left of its network cannot be declared: " + sandbox.AsError(err).Message
		}
		o.lower(r, change)
		if m.Ask != "" {
			o.Asks = append(o.Asks, m.Ask)
		}
		if m.Refuse != "" && o.Refused == nil {
			o.Refused = &sandbox.Error{Code: sandbox.CodePolicyRefused, Message: fmt.Sprintf("the operator's rule %s refuses it: %s", r.ID, m.Refuse)}
		}
		o.Result.Rules = append(o.Result.Rules, m)
	}
	return o
}

type changing func(field, from, to string)

func (o *Outcome) raise(r rule, change changing) {
	have, least := cmp.Or(o.Asked.Isolation, o.Asked.Least), r.Then.Isolation
	if least == "" || sandbox.LevelAtLeast(have, least) {
		return
	}
	change("isolation", have, least)
	o.Asked.Isolation = least
}

// narrow takes from the network what a rule does not leave. After an error nothing is left.
func (o *Outcome) narrow(r rule, change changing) error {
	was := o.Asked.Network
	if was.None() || r.Then.Network == "" && len(r.allow) == 0 {
		return nil
	}
	left := sandbox.Network{Limits: was.Limits}
	if r.Then.Network != sandbox.PolicyNone {
		left.Endpoints = leave(was.Endpoints, r.allow)
	}
	if left.None() {
		left = sandbox.Network{}
	} else if !slices.ContainsFunc(left.Endpoints, sandbox.Endpoint.Ruled) {
		left.Limits.Requests = 0 // nobody would count them
	}
	left, err := left.Canonical()
	if err != nil {
		left = sandbox.Network{Mode: sandbox.NetworkNone}
	}
	if !reflect.DeepEqual(left.Endpoints, was.Endpoints) {
		change("network", words(was), words(left))
		o.Asked.Network = left
	}
	return err
}

func (o *Outcome) lower(r rule, change changing) {
	most, have := r.Then.Limits, &o.Asked.Limits
	for _, info := range sandbox.LimitTable() {
		m, h, all := most.Get(info.Field), have.Get(info.Field), o.Result.Limits.Get(info.Field)
		if m > 0 && (all == 0 || all > m) {
			o.Result.Limits.Set(info.Field, m)
		}
		if m > 0 && (h == 0 || h > m) {
			change("limits."+info.Field, number(h), number(m))
			have.Set(info.Field, m)
		}
	}
	if all := &o.Result.Limits.CPUs; most.CPUs > 0 && (*all == 0 || *all > most.CPUs) {
		*all = most.CPUs
	}
	if most.CPUs > 0 && (have.CPUs == 0 || have.CPUs > most.CPUs) {
		change("limits.cpus", strconv.FormatFloat(have.CPUs, 'f', -1, 64), strconv.FormatFloat(most.CPUs, 'f', -1, 64))
		have.CPUs = most.CPUs
	}
}

func number(n int64) string {
	if n == 0 {
		return "" // no bound of its own
	}
	return strconv.FormatInt(n, 10)
}

// maxWords bounds what a change says of a network, in bytes.
const maxWords = 2000

// words says a network in short.
func words(n sandbox.Network) string {
	if n.None() {
		return sandbox.NetworkNone
	}
	text := strings.Join(Words(n), ", ")
	if len(text) > maxWords {
		text = text[:maxWords] + "…"
	}
	return text
}

// Words are the endpoints of a network, in words. Where a name is that the operator has given an
// address is left out: those who read it are told of no other result either.
func Words(n sandbox.Network) (all []string) {
	for _, e := range n.Endpoints {
		e.Address = ""
		all = append(all, e.Words()...)
	}
	return all
}
