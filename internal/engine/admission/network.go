package admission

import (
	"fmt"
	"slices"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// Network is what the operator lets requests declare at most. The zero value is nothing.
type Network struct {
	// Own says that whoever asks is the operator: the command line, which makes sandboxes
	// itself, and programs that have the engine inside.
	Own bool
	// Allow are endpoints whose hosts may be patterns (sandbox.CanonicalPattern). Those of
	// one host and port add up.
	Allow []sandbox.Endpoint
}

// Endpoints puts the operator's word over a declaration, which must be valid: what is not
// allowed is refused, and where the operator says that a name is somewhere, it is there.
func (p Network) Endpoints(n sandbox.Network) (sandbox.Network, error) {
	n, err := n.Canonical()
	if err != nil || p.Own {
		return n, err
	}
	n.Endpoints = slices.Clone(n.Endpoints)
	at := map[string]string{} // where hosts are
	for i, e := range n.Endpoints {
		field := fmt.Sprintf("network.endpoints[%d]", i)
		address, err := p.address(e, field)
		if err != nil {
			return sandbox.Network{}, err
		}
		if before, twice := at[e.Host]; twice && before != address {
			return sandbox.Network{}, manyAddresses(e.Host, field+".host")
		}
		at[e.Host], n.Endpoints[i].Address = address, address
	}
	return n, nil
}

// address is where the operator says that an endpoint is, or "" where the host looks it up.
func (p Network) address(e sandbox.Endpoint, field string) (string, error) {
	var by []sandbox.Endpoint
	for _, port := range e.Ports {
		some := p.at(e.Host, port)
		within := egress.Within(e, some)
		switch {
		case len(some) == 0:
			return "", (&sandbox.Error{
				Code: sandbox.CodeEndpointDenied, Field: field + ".host", Message: fmt.Sprintf("this server lets no sandbox reach %s at port %d", e.Host, port),
			}).WithAdvice(sandbox.Advise("its operator can add \"%s\" to %s", sandbox.Text(fmt.Sprintf("%s:%d", e.Host, port)), sandbox.Config("network.allow")))
		case len(within) == 0:
			return "", tooWide(e, port, some, field)
		}
		by = append(by, within...)
	}
	given := by[0].Address
	switch {
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
func (p Network) at(host string, port int) (some []sandbox.Endpoint) {
	for _, a := range p.Allow {
		if sandbox.MatchHost(a.Host, host) && slices.Contains(a.Ports, port) {
			some = append(some, a)
		}
	}
	return some
}

func manyAddresses(host, field string) error {
	return (&sandbox.Error{
		Code: sandbox.CodeEndpointDenied, Field: field, Message: "this server has " + host + " at different addresses",
	}).WithHint("declare one port of it, or one of its rules")
}

// tooWide says which requests may be declared of those to a host and a port.
func tooWide(e sandbox.Endpoint, port int, some []sandbox.Endpoint, field string) error {
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
		Message: fmt.Sprintf("this server lets sandboxes make some requests to %s at port %d only, and not all of %s are among them", e.Host, port, sandbox.SafeText(asked.String(), 200)),
	}).WithAdvice(sandbox.Advise("declare what may be asked for, or less of it: %s", sandbox.Set("network", right)))
}
