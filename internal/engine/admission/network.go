package admission

import (
	"fmt"
	"slices"

	"pinfold/sandbox"
)

// Network is what the operator lets requests declare at most. The zero value is nothing.
type Network struct {
	// Own says that whoever asks is the operator: the command line, which makes sandboxes
	// itself, and programs that have the engine inside.
	Own bool
	// Allow are endpoints whose hosts may be patterns (sandbox.CanonicalPattern).
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
	for i, e := range n.Endpoints {
		address, err := p.address(e, fmt.Sprintf("network.endpoints[%d]", i))
		if err != nil {
			return sandbox.Network{}, err
		}
		n.Endpoints[i].Address = address
	}
	return n, nil
}

// address is where the operator says that an endpoint is, or "" where the host looks it up.
func (p Network) address(e sandbox.Endpoint, field string) (string, error) {
	address := ""
	for i, port := range e.Ports {
		at := slices.IndexFunc(p.Allow, func(a sandbox.Endpoint) bool {
			return sandbox.MatchHost(a.Host, e.Host) && slices.Contains(a.Ports, port)
		})
		if at < 0 {
			return "", (&sandbox.Error{
				Code: sandbox.CodeEndpointDenied, Field: field + ".host", Message: fmt.Sprintf("this server lets no sandbox reach %s at port %d", e.Host, port),
			}).WithAdvice(sandbox.Advise("its operator can add \"%s\" to %s", sandbox.Text(fmt.Sprintf("%s:%d", e.Host, port)), sandbox.Config("network.allow")))
		}
		given := p.Allow[at].Address
		switch {
		case e.Address != "" && e.Address != given:
			return "", (&sandbox.Error{
				Code: sandbox.CodeEndpointDenied, Field: field + ".address", Message: "where " + e.Host + " is, only this server's operator says",
			}).WithHint("leave the address out")
		case i > 0 && given != address:
			return "", (&sandbox.Error{
				Code: sandbox.CodeEndpointDenied, Field: field + ".ports", Message: "this server has the ports of " + e.Host + " at different addresses",
			}).WithHint("declare one of them")
		}
		address = given
	}
	return address, nil
}
