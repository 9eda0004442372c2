package sandbox

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Network says what a sandbox can reach. The zero value is nothing: no network at all.
//
// In JSON it is the text "none" or "ask", or an object with endpoints. What is declared is all
// there is: the sandbox has no route, only names that work.
type Network struct {
	Mode      string        `json:"-"` // "none" or "ask" (NetworkAsk); may be empty
	Endpoints []Endpoint    `json:"endpoints"`
	Limits    NetworkLimits `json:"limits,omitzero"`
}

// Endpoint is one name that a sandbox can reach, at some ports.
type Endpoint struct {
	// Host is a DNS name, or *. and one: every name below that, of which a sandbox can
	// connect to MaxNames.
	Host string `json:"host,omitempty"`
	// Set names endpoints of the server's configuration, and stands by itself: those take its
	// place when the request is admitted.
	Set   string `json:"set,omitempty"`
	Ports []int  `json:"ports,omitempty"` // default DefaultPort
	// Address is the operator's word that the name is there, also at a private or
	// loopback address. Otherwise the host looks the name up, and goes to public
	// addresses only.
	Address string `json:"address,omitempty"`
	// Methods and Paths say which requests pass; an empty list is all of them. Where
	// there is one the host reads what is said, and ends TLS for that.
	Methods []string `json:"methods,omitempty"` // such as GET; no method includes another
	// Paths are exact, but for * (any text within one segment) and /** at the end
	// (everything below).
	Paths []string `json:"paths,omitempty"`
	// Secret names one that the host puts into the requests that pass by this, where it
	// ends TLS. Programs inside do not have it.
	Secret string `json:"secret,omitempty"`
}

// NetworkLimits bound what goes on with all endpoints together. A zero field means the
// default (DefaultNetworkLimits), never infinity.
type NetworkLimits struct {
	Connections int64 `json:"connections,omitempty"` // at once
	// Requests are those that pass in all the sandbox's life, where the host reads them:
	// at endpoints with methods, paths or a secret. Without such there is no such limit.
	Requests  int64 `json:"requests,omitempty"`
	BytesUp   int64 `json:"bytes_up,omitempty"`   // out of the sandbox, in all its life
	BytesDown int64 `json:"bytes_down,omitempty"` // into it
}

// Bounds on a declaration.
const (
	DefaultPort  = 443
	MaxEndpoints = 32
	MaxDoors     = 64 // names times ports
	MaxNames     = 64 // that wildcards stand for, to which one sandbox connects in its life
)

// DefaultNetworkLimits are the limits of who asks for none.
func DefaultNetworkLimits() NetworkLimits {
	return NetworkLimits{Connections: 64, Requests: 1_000_000, BytesUp: 1 << 30, BytesDown: 8 << 30}
}

// maxNetworkLimits are the most that can be asked for.
var maxNetworkLimits = NetworkLimits{Connections: 1024, Requests: 1_000_000_000, BytesUp: 1 << 40, BytesDown: 1 << 40}

// WithDefaults returns l with the defaults filled in.
func (l NetworkLimits) WithDefaults() NetworkLimits {
	return l.Or(DefaultNetworkLimits())
}

// Or returns l with what it does not say taken from others.
func (l NetworkLimits) Or(of NetworkLimits) NetworkLimits {
	return NetworkLimits{
		Connections: cmp.Or(l.Connections, of.Connections), Requests: cmp.Or(l.Requests, of.Requests), BytesUp: cmp.Or(l.BytesUp, of.BytesUp), BytesDown: cmp.Or(l.BytesDown, of.BytesDown),
	}
}

// IsZero says whether nothing was said, for JSON.
func (n Network) IsZero() bool {
	return n.Mode == "" && n.Endpoints == nil && n.Limits == NetworkLimits{}
}

// Asks says whether nothing can be reached, and what is tried is written down.
func (n Network) Asks() bool { return n.None() && n.Mode == NetworkAsk }

// None says whether nothing can be reached.
func (n Network) None() bool { return len(n.Endpoints) == 0 }

// Canonical is the one reading of a declaration: every name lower-case and once, its
// ports in order and without repetition, its address in one form; limits complete where
// there are endpoints. Sets stay as they are. What has another reading is refused, with the
// field.
func (n Network) Canonical() (Network, error) {
	if n.Mode != "" && n.Mode != NetworkNone && n.Mode != NetworkAsk {
		return Network{}, (&Error{
			Code: CodeSpecInvalid, Field: "network",
			Message: fmt.Sprintf("no network mode \"%s\"", SafeText(n.Mode, 60)),
		}).WithAdvice(Advise("none is the default; or declare what can be reached: %s", Set("network", Network{Endpoints: []Endpoint{{Host: "api.example.com"}}})))
	}
	if n.None() {
		if n.Limits != (NetworkLimits{}) {
			return Network{}, specError("network.limits", "limits without endpoints limit nothing").WithHint("declare endpoints, or leave network out")
		}
		return Network{Mode: cmp.Or(n.Mode, NetworkNone)}, nil
	}
	if n.Mode == NetworkNone {
		return Network{}, specError("network", "none and endpoints exclude each other").WithHint("leave out one of them")
	}
	limits, err := n.Limits.complete()
	if err != nil {
		return Network{}, err
	}
	if len(n.Endpoints) > MaxEndpoints {
		return Network{}, tooLarge("network.endpoints", int64(len(n.Endpoints)), MaxEndpoints).WithHint(fmt.Sprintf("declare at most %d names", MaxEndpoints))
	}
	out := Network{Limits: limits}
	for i, e := range n.Endpoints {
		if err := out.add(fmt.Sprintf("network.endpoints[%d]", i), e); err != nil {
			return Network{}, err
		}
	}
	if doors := out.doors(); doors > MaxDoors {
		return Network{}, tooLarge("network.endpoints", int64(doors), MaxDoors)
	}
	if !slices.ContainsFunc(out.Endpoints, Endpoint.Ruled) { // nobody sees a request
		if n.Limits.Requests != 0 && !out.Sets() {
			return Network{}, specError("network.limits.requests", "no endpoint has methods, paths or a secret, so that nobody counts requests").
				WithHint(`leave it out, or have the requests of an endpoint be read: "paths": ["/", "/**"]`)
		}
		out.Limits.Requests = n.Limits.Requests
	}
	return out, nil
}

// doors counts names with ports, each once.
func (n Network) doors() int {
	type door struct {
		host string
		port int
	}
	all := map[door]bool{}
	for _, e := range n.Endpoints {
		for _, p := range e.Ports {
			all[door{e.Host, p}] = true
		}
	}
	return len(all)
}

// add adds one endpoint to those that are canonical already.
func (n *Network) add(field string, e Endpoint) error {
	e, err := e.canonical(field)
	if err != nil {
		return err
	}
	for _, have := range n.Endpoints {
		if have.Host != e.Host {
			continue
		}
		if have.Address != e.Address {
			return specError(field+".address", e.Host+" is declared twice, at different addresses").WithHint("give the second one another name")
		}
		if at := slices.IndexFunc(e.Ports, func(p int) bool { return slices.Contains(have.Ports, p) }); at >= 0 && have.Ruled() != e.Ruled() {
			return specError(field, fmt.Sprintf("%s is declared twice at port %d, once with methods, paths or a secret and once without", e.Host, e.Ports[at])).
				WithHint("leave out one of them: without them every request passes, and untouched")
		}
	}
	for i := range n.Endpoints {
		if n.Endpoints[i].join(e) {
			return nil
		}
	}
	n.Endpoints = append(n.Endpoints, e)
	return nil
}

// canonical is the one reading of an endpoint.
func (e Endpoint) canonical(field string) (Endpoint, error) {
	if e.Set != "" {
		return e.canonicalSet(field)
	}
	host, err := CanonicalPattern(e.Host)
	if err != nil {
		return Endpoint{}, AsError(err).WithField(field + ".host")
	}
	switch {
	case IsPattern(host) && e.Address != "":
		return Endpoint{}, specError(field+".address", "many names cannot be at one address").WithHint("declare each name by itself")
	case IsPattern(host) && e.Secret != "":
		return Endpoint{}, specError(field+".secret", "a secret is for names that are known, not for those that a program makes up").WithHint("declare the name that gets it by itself")
	}
	out := Endpoint{Host: host, Ports: slices.Clone(e.Ports)}
	if len(out.Ports) == 0 {
		out.Ports = []int{DefaultPort}
	}
	for i, p := range out.Ports {
		if p < 1 || p > 65535 {
			return Endpoint{}, specError(fmt.Sprintf("%s.ports[%d]", field, i), fmt.Sprintf("%d is outside 1 to 65535", p))
		}
	}
	slices.Sort(out.Ports)
	out.Ports = slices.Compact(out.Ports)
	if out.Methods, err = canonicalMethods(field+".methods", e.Methods); err != nil {
		return Endpoint{}, err
	}
	if out.Paths, err = canonicalPaths(field+".paths", e.Paths); err != nil {
		return Endpoint{}, err
	}
	if e.Secret != "" {
		if err := CheckSecretName(e.Secret); err != nil {
			return Endpoint{}, AsError(err).WithField(field + ".secret")
		}
		out.Secret = e.Secret
	}
	if e.Address != "" {
		if out.Address, err = canonicalAddress(e.Address); err != nil {
			return Endpoint{}, AsError(err).WithField(field + ".address")
		}
	}
	return out, nil
}

func canonicalAddress(text string) (string, error) {
	a, err := netip.ParseAddr(text)
	bad := specError("", fmt.Sprintf("\"%s\" is no IP address", SafeText(text, 60))).WithHint("write one such as 10.0.0.7 or fd00::7, without a port")
	switch {
	case err != nil:
		return "", bad
	case a.Zone() != "", a.Is4In6(), a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		bad.Message = fmt.Sprintf("%s is the address of no single machine", SafeText(text, 60))
		return "", bad
	}
	return a.String(), nil
}

func (l NetworkLimits) complete() (NetworkLimits, error) {
	for _, f := range []struct {
		name       string
		given, max int64
	}{
		{"connections", l.Connections, maxNetworkLimits.Connections},
		{"requests", l.Requests, maxNetworkLimits.Requests},
		{"bytes_up", l.BytesUp, maxNetworkLimits.BytesUp},
		{"bytes_down", l.BytesDown, maxNetworkLimits.BytesDown},
	} {
		if f.given < 0 || f.given > f.max {
			return l, &Error{
				Code: CodeLimitInvalid, Field: "network.limits." + f.name, Message: fmt.Sprintf("%d is outside 1 to %d", f.given, f.max),
				Hint: "leave it out for the default; zero does not mean unlimited",
			}
		}
	}
	return l.WithDefaults(), nil
}
