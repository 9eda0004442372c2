package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// Network is what the operator lets requests declare at most. The zero value is nothing.
// Its endpoints may have patterns for hosts (sandbox.CanonicalPattern) and name sets; those
// of one host and port add up.
type Network struct {
	// Own says that whoever asks is the operator: the command line, which makes sandboxes
	// itself, and programs that have the engine inside.
	Own bool
	// Allow is for every tenant that has no list of its own in Tenants.
	Allow   []sandbox.Endpoint
	Tenants map[string][]sandbox.Endpoint
	Sets    map[string][]sandbox.Endpoint // which name no sets
}

type narrowed struct{}

// Narrow has requests under a context declare nothing but what is within a list, too: that
// of the key by which they are made. A nil list narrows nothing.
func Narrow(ctx context.Context, allow []sandbox.Endpoint) context.Context {
	if allow == nil {
		return ctx
	}
	return context.WithValue(ctx, narrowed{}, allow)
}

// Endpoints puts the operator's word over a declaration of a tenant's, which must be valid:
// the endpoints of a set take its place, what is not allowed is refused, and where the
// operator says that a name is somewhere, it is there.
func (p Network) Endpoints(ctx context.Context, tenant string, n sandbox.Network) (sandbox.Network, error) {
	n, err := n.Canonical()
	if err != nil {
		return n, err
	}
	operators, keys := p.lists(ctx, tenant)
	lists := slices.Concat(operators, keys)
	if n.Sets() {
		if n, err = p.withSets(n, lists); err != nil {
			return sandbox.Network{}, err
		}
	}
	if err := egress.OneOwner(n); err != nil {
		return sandbox.Network{}, err
	}
	n.Endpoints = slices.Clone(n.Endpoints)
	at := map[string]string{} // where hosts are
	for i, e := range n.Endpoints {
		field := fmt.Sprintf("network.endpoints[%d]", i)
		if n.Endpoints[i].Address, err = addressBy(lists, e, field); err != nil {
			return sandbox.Network{}, err
		}
		if before, twice := at[e.Host]; twice && before != n.Endpoints[i].Address {
			return sandbox.Network{}, manyAddresses(e.Host, field+".host")
		}
		at[e.Host] = n.Endpoints[i].Address
	}
	return n, nil
}

// lists are those that a declaration of a tenant's has to be within: the operator's, and
// that of the key; none of either narrows nothing.
func (p Network) lists(ctx context.Context, tenant string) (operators, keys []list) {
	if own, listed := p.Tenants[tenant]; listed {
		operators = append(operators, list{allow: p.expand(own), config: "network.tenants." + tenant})
	} else if !p.Own {
		operators = append(operators, list{allow: p.expand(p.Allow), config: "network.allow"})
	}
	if key, narrow := ctx.Value(narrowed{}).([]sandbox.Endpoint); narrow {
		keys = append(keys, list{allow: p.expand(key), key: true})
	}
	return operators, keys
}

// addressBy is where an endpoint is that all the lists allow.
func addressBy(lists []list, e sandbox.Endpoint, field string) (string, error) {
	for _, l := range lists {
		address, err := l.address(e, field)
		if err != nil {
			return "", err
		}
		if !l.key { // it says what may be declared, and not where that is
			e.Address = address
		}
	}
	return e.Address, nil
}

// list is what may be declared.
type list struct {
	allow  []sandbox.Endpoint // which names no sets
	key    bool               // it is a key's, and not the operator's for the tenant
	config string             // else, where the operator has it
}

// address is where a list says that an endpoint is, or "" where the host looks it up.
func (l list) address(e sandbox.Endpoint, field string) (string, error) {
	var by []sandbox.Endpoint
	for _, port := range e.Ports {
		some := l.at(e.Host, port)
		within := egress.Within(e, some)
		switch {
		case len(some) == 0:
			return "", l.unlisted(e, port, field+".host")
		case len(within) == 0:
			return "", l.tooWide(e, port, some, field)
		}
		by = append(by, within...)
	}
	given := by[0].Address
	switch {
	case l.key:
		return "", nil
	case slices.ContainsFunc(by, func(a sandbox.Endpoint) bool { return a.Address != given }):
		return "", manyAddresses(e.Host, field+".ports")
	case e.Address != "" && e.Address != given:
		return "", (&sandbox.Error{
			Code: sandbox.CodeEndpointDenied, Field: field + ".address", Message: "where " + e.Host + " is, only this server's operator says",
		}).WithHint("leave the address out")
	}
	return given, nil
}

// at are the endpoints that may be declared of a host at a port.
func (l list) at(host string, port int) (some []sandbox.Endpoint) {
	for _, a := range l.allow {
		if sandbox.MatchHost(a.Host, host) && slices.Contains(a.Ports, port) {
			some = append(some, a)
		}
	}
	return some
}

// who is whose list it is.
func (l list) who() string {
	if l.key {
		return "this key"
	}
	return "this server"
}

func (l list) unlisted(e sandbox.Endpoint, port int, field string) error {
	err := &sandbox.Error{Code: sandbox.CodeEndpointDenied, Field: field, Message: fmt.Sprintf("%s lets no sandbox reach %s at port %d", l.who(), e.Host, port)}
	if l.key {
		return err.WithHint("use a key that may: what this one may reach was said when it was made (pinfold key create --allow)")
	}
	asked := sandbox.Endpoint{Host: e.Host, Ports: []int{port}, Methods: e.Methods, Paths: e.Paths} // and not more
	words := asked.Words()
	return err.WithAdvice(sandbox.Advise("its operator can add \"%s\" to %s", sandbox.Text(strings.Join(words[:min(len(words), maxSaid)], `", "`)), sandbox.Config(l.config)))
}

// maxSaid is how many lines of a list a hint says.
const maxSaid = 4

// tooWide says which requests may be declared of those to a host and a port.
func (l list) tooWide(e sandbox.Endpoint, port int, some []sandbox.Endpoint, field string) error {
	if !slices.ContainsFunc(some, func(a sandbox.Endpoint) bool {
		return len(egress.Within(sandbox.Endpoint{Methods: e.Methods}, []sandbox.Endpoint{{Methods: a.Methods}})) > 0
	}) {
		field += ".methods"
	} else {
		field += ".paths"
	}
	var right sandbox.Network
	for _, a := range some[:min(len(some), sandbox.MaxEndpoints)] {
		right.Endpoints = append(right.Endpoints, sandbox.Endpoint{Host: e.Host, Ports: []int{port}, Methods: a.Methods, Paths: a.Paths, Secret: e.Secret})
	}
	asked := e
	asked.Ports, asked.Address = []int{port}, ""
	return (&sandbox.Error{
		Code: sandbox.CodeEndpointDenied, Field: field,
		Message: fmt.Sprintf("%s lets sandboxes make some requests to %s at port %d only, and not all of %s are among them", l.who(), e.Host, port, sandbox.SafeText(asked.String(), 200)),
	}).WithAdvice(sandbox.Advise("declare what may be asked for, or less of it: %s", sandbox.Set("network", right)))
}

func manyAddresses(host, field string) error {
	return (&sandbox.Error{
		Code: sandbox.CodeEndpointDenied, Field: field, Message: "this server has " + host + " at different addresses",
	}).WithHint("declare one port of it, or one of its rules")
}
