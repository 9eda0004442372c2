package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// NetworkChange changes what a living sandbox can reach, at once: what is not declared any
// more is cut. What it does not name stays as it is.
type NetworkChange struct {
	// Network takes the place of all that is declared. It stands by itself.
	Network *Network `json:"network,omitempty"`
	// Deny takes names away, in the words of ParseEndpoint: HOST with all its ports, or
	// HOST:PORT.
	Deny []string `json:"deny,omitempty"`
	// Allow is added to what is left.
	Allow  []Endpoint    `json:"allow,omitempty"`
	Limits NetworkLimits `json:"limits,omitzero"`
}

// UnmarshalJSON is as strict as a Network's.
func (c *NetworkChange) UnmarshalJSON(data []byte) error {
	var out NetworkChange
	var allow Network
	err := object{is: "an object", known: map[string]func(string, json.RawMessage) error{
		"network": func(_ string, data json.RawMessage) error {
			out.Network = new(Network)
			return json.Unmarshal(data, out.Network)
		},
		"deny": words(&out.Deny, MaxDoors, `write "deny": ["api.example.com"]`), "allow": allow.readEndpoints, "limits": out.Limits.read,
	}}.read(data)
	if err != nil {
		return err
	}
	out.Allow = allow.Endpoints
	*c = out
	return nil
}

// Of is what can be reached after the change where now can be, and could be at first what
// the sandbox was made with. It is not canonical. Hosts of made are where they are there, and
// have no address here unless the change gives them one as a whole.
func (c NetworkChange) Of(now, made Network) (_ Network, err error) {
	n := Network{Endpoints: slices.Clone(now.Endpoints), Limits: c.Limits}
	for i, e := range n.Endpoints {
		if made.knows(e.Host) {
			n.Endpoints[i].Address = ""
		}
	}
	switch {
	case c.Network == nil && len(c.Deny) == 0 && len(c.Allow) == 0 && c.Limits == NetworkLimits{}:
		return n, specError("network", "nothing is to change").WithHint(`say what: {"deny": ["api.example.com"]}, or {"network": "none"}`)
	case c.Network != nil && (len(c.Deny) > 0 || len(c.Allow) > 0 || c.Limits != NetworkLimits{}):
		return n, specError("network", "takes the place of everything, and so stands by itself").WithHint("leave out deny, allow and limits")
	case c.Network != nil:
		return *c.Network, nil
	}
	for i, text := range c.Deny {
		field := fmt.Sprintf("deny[%d]", i)
		e, err := readDenied(text)
		if err != nil {
			return n, AsError(err).WithField(field)
		}
		if !slices.ContainsFunc(slices.Concat(n.Endpoints, made.Endpoints), e.denies) {
			return n, notDeclared(text, field, now)
		}
		n.Endpoints = e.without(n.Endpoints)
	}
	for i, e := range c.Allow {
		if e, err = e.where(made.Endpoints); err != nil {
			return n, AsError(err).WithField(fmt.Sprintf("allow[%d].%s", i, AsError(err).Field))
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	if n.None() { // and limits nothing
		return Network{Mode: NetworkNone}, nil
	}
	return n, nil
}

// knows says whether a canonical host is declared.
func (n Network) knows(host string) bool {
	return slices.ContainsFunc(n.Endpoints, func(e Endpoint) bool { return e.Host == host })
}

// where is e without its address where that is what the sandbox was made with.
func (e Endpoint) where(made []Endpoint) (Endpoint, error) {
	if e.Address == "" || e.Set != "" {
		return e, nil
	}
	host, err := CanonicalPattern(e.Host)
	if err != nil {
		return e, AsError(err).WithField("host")
	}
	i := slices.IndexFunc(made, func(m Endpoint) bool { return m.Host == host })
	if i < 0 {
		return e, nil
	}
	address, err := canonicalAddress(e.Address)
	switch {
	case err != nil:
		return e, AsError(err).WithField("address")
	case address != made[i].Address:
		return e, (&Error{Code: CodeEndpointDenied, Field: "address", Message: host + " is at another address for the sandbox, and stays there"}).
			WithHint("leave the address out, or make another sandbox")
	}
	e.Address = ""
	return e, nil
}

// readDenied reads HOST or HOST:PORT.
func readDenied(text string) (Endpoint, error) {
	e, err := ParseEndpoint(text)
	if err != nil {
		return e, err
	}
	all := e.Ports == nil
	if e.Ruled() || e.Address != "" || e.Set != "" {
		return e, specError("", fmt.Sprintf("\"%s\" says more than a name and ports", SafeText(text, 80))).
			WithHint("write HOST or HOST:PORT; to take away methods or paths, deny the host and allow what may stay")
	}
	if e, err = e.canonical(""); err != nil {
		return e, AsError(err).WithField("")
	}
	if all {
		e.Ports = nil
	}
	return e, nil
}

// denies says whether e, of which no ports are all, takes something of another away.
func (e Endpoint) denies(of Endpoint) bool {
	return of.Host == e.Host && (len(e.Ports) == 0 || slices.ContainsFunc(e.Ports, func(p int) bool { return slices.Contains(of.Ports, p) }))
}

// without are those of which something is left when e is taken away.
func (e Endpoint) without(all []Endpoint) (left []Endpoint) {
	for _, of := range all {
		if e.denies(of) {
			of.Ports = slices.DeleteFunc(slices.Clone(of.Ports), func(p int) bool { return len(e.Ports) == 0 || slices.Contains(e.Ports, p) })
			if len(of.Ports) == 0 {
				continue
			}
		}
		left = append(left, of)
	}
	return left
}

func notDeclared(text, field string, now Network) error {
	var names []string
	for _, e := range now.Endpoints {
		e.Address = "" // which is the operator's
		names = append(names, e.authority(e.Ports))
	}
	err := specError(field, fmt.Sprintf("%s is not among the names that are declared", SafeText(text, 80)))
	if len(names) == 0 {
		return err.WithHint("nothing is: the sandbox reaches nothing")
	}
	slices.Sort(names)
	return err.WithHint("these are " + strings.Join(slices.Compact(names), " and "))
}
