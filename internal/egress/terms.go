package egress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// terms are what holds for a machine now. They never change: each change makes others.
type terms struct {
	declared []sandbox.Endpoint
	limits   sandbox.NetworkLimits
	secrets  map[string]secret.Secret // also those that nothing names any more
}

// at is what is declared of a host at a port.
func (t *terms) at(host string, port int) (some []sandbox.Endpoint) {
	for _, e := range t.declared {
		if e.Host == host && slices.Contains(e.Ports, port) {
			some = append(some, e)
		}
	}
	return some
}

// rules are what requests to a host at a port are held to; none where they are not read.
func (t *terms) rules(host string, port int) []sandbox.Endpoint {
	some := t.at(host, port)
	if len(some) == 0 || !some[0].Ruled() { // all of them are, or none is
		return nil
	}
	return some
}

// has says whether anything of a host is declared.
func (t *terms) has(host string) bool {
	return slices.ContainsFunc(t.declared, func(e sandbox.Endpoint) bool { return e.Host == host })
}

// keeps says whether connections to a host at a port, made under other terms, may go on.
// Where requests are read each of them is asked about by itself.
func (t *terms) keeps(was *terms, host string, port int) bool {
	some := t.at(host, port)
	return len(some) > 0 && some[0].Ruled() == (len(was.rules(host, port)) > 0)
}

// asking is a request under way.
type asking struct {
	host           string // as declared
	port           int
	method, target string
	cancel         context.CancelCauseFunc
}

// keepsAsking says whether a request that passed under other terms may go on.
func (t *terms) keepsAsking(was *terms, a *asking) bool {
	rules := t.rules(a.host, a.port)
	if _, err := allows(rules, a.method, a.target); err != nil {
		return false
	}
	had := secretName(was.rules(a.host, a.port), a.method, a.target)
	return had == "" || had == secretName(rules, a.method, a.target)
}

// secretName is the secret that rules have for a request, or "".
func secretName(rules []sandbox.Endpoint, method, target string) string {
	for _, rule := range rules {
		if rule.Secret == "" {
			continue
		}
		if _, err := allows([]sandbox.Endpoint{rule}, method, target); err == nil {
			return rule.Secret
		}
	}
	return ""
}

var errNarrowed = errors.New("the network of this sandbox was narrowed")

// Prepare says whether the machine can have another declaration, which must be canonical and
// be allowed, and returns what has it hold, at once: what it does not let pass is cut. A
// limit of a whole life counts what went on before; one of zero stays as it is. find may be
// nil: there are no secrets but those that the machine has.
func (r *Relay) Prepare(ctx context.Context, n sandbox.Network, tenant string, find secret.Finder) (begin func(), err error) {
	for i, e := range n.Endpoints {
		if err := r.canHave(e, fmt.Sprintf("network.endpoints[%d]", i)); err != nil {
			return nil, err
		}
	}
	have := r.now.Load().secrets
	found, err := findSecrets(ctx, n, tenant, find, have)
	if err != nil {
		return nil, err
	}
	return func() { r.declare(n, found) }, nil
}

// canHave says why the machine cannot have an endpoint: its doors were made before anything
// ran, and so was whom its programs trust.
func (r *Relay) canHave(e sandbox.Endpoint, field string) error {
	for _, p := range e.Ports {
		if !slices.ContainsFunc(r.doors, func(d Door) bool { return d.Host == e.Host && d.Port == p }) {
			return NoDoor(e.Host, p, field+".host")
		}
	}
	if e.Ruled() && !r.means.Authority.signs(e.Host) {
		return (&sandbox.Error{
			Code: sandbox.CodeNetworkUnsupported, Field: field,
			Message: fmt.Sprintf("requests to %s cannot be read in a sandbox that was made without: its programs trust nobody but the server there", e.Host),
		}).WithHint(`deny it, or make another sandbox with methods and paths for it; "paths": ["/", "/**"] lets all pass and can be narrowed later`)
	}
	if !e.Ruled() && r.means.Authority.only() {
		return (&sandbox.Error{
			Code: sandbox.CodeNetworkUnsupported, Field: field,
			Message: fmt.Sprintf("connections to %s cannot pass unread in a sandbox that was made to have all requests read: its programs trust nobody but its own authority", e.Host),
		}).WithHint(`"paths": ["/", "/**"] lets all requests pass; or make another sandbox`)
	}
	return nil
}

// NoDoor is the error where a machine that is there has no listener for a name at a port.
func NoDoor(host string, port int, field string) error {
	return (&sandbox.Error{
		Code: sandbox.CodeNetworkUnsupported, Field: field,
		Message: fmt.Sprintf("a sandbox that is there cannot get a way to %s at port %d: what programs connect to was made with it", host, port),
	}).WithAdvice(sandbox.Advise("make another sandbox that declares it: %s", sandbox.Call(sandbox.CallCreateSandbox)))
}

// declare has other terms hold from now on.
func (r *Relay) declare(n sandbox.Network, found map[string]secret.Secret) {
	for _, f := range r.hold(n, found) {
		f.transport.CloseIdleConnections()
	}
}

// hold is declare, and returns who may have connections to servers of which nobody asks
// anything.
func (r *Relay) hold(n sandbox.Network, found map[string]secret.Secret) []*forwarder {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.now.Load()
	next := &terms{declared: n.Endpoints, limits: was.limits, secrets: maps.Clone(was.secrets)}
	if next.secrets == nil {
		next.secrets = found
	} else {
		maps.Copy(next.secrets, found)
	}
	next.limits.Connections = orWas(n.Limits.Connections, was.limits.Connections)
	for _, l := range []struct {
		limit *int64
		given int64
		left  interface{ Add(int64) int64 }
	}{
		{&next.limits.Requests, n.Limits.Requests, &r.ledger.asks},
		{&next.limits.BytesUp, n.Limits.BytesUp, &r.ledger.up},
		{&next.limits.BytesDown, n.Limits.BytesDown, &r.ledger.down},
	} {
		given := orWas(l.given, *l.limit)
		l.left.Add(given - *l.limit)
		*l.limit = given
	}
	r.now.Store(next) // before who is under way is looked at: who comes later asks these
	r.cutBeyond(was, next)
	return slices.Clone(r.forwarders)
}

func orWas(given, was int64) int64 {
	if given == 0 {
		return was
	}
	return given
}

// cutBeyond ends what goes on and new terms do not let pass. The lock is held.
func (r *Relay) cutBeyond(was, next *terms) {
	var kept []*connection
	for c := range r.open {
		if c.door.Proxy != "" || next.keeps(was, c.endpoint.Host, c.door.Port) {
			kept = append(kept, c)
			continue
		}
		r.ledger.deny(c.endpoint.Host, c.door.Port, sandbox.DeniedNarrowed, "a connection was open and was cut")
		c.cut()
	}
	slices.SortFunc(kept, func(a, b *connection) int { return int(a.number - b.number) })
	for _, c := range kept[min(int64(len(kept)), next.limits.Connections):] { // those that came last
		r.ledger.deny(c.endpoint.Host, c.door.Port, sandbox.DeniedConnections, "")
		c.cut()
	}
	for a := range r.asking {
		if !next.keepsAsking(was, a) {
			r.ledger.deny(a.host, a.port, sandbox.DeniedNarrowed, "a request was under way and was cut")
			a.cancel(errNarrowed)
		}
	}
}

// under notes a request that is under way, before it is held against anything, until the
// function that it returns is called.
func (r *Relay) under(a *asking) (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking[a] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asking, a)
	}
}
