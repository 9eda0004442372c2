package sandbox

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Network says what a sandbox can reach. The zero value is nothing: no network at all.
//
// In JSON it is the text "none", or an object with endpoints. What is declared is all
// there is: the sandbox has no route, only names that work.
type Network struct {
	Mode      string        `json:"-"` // "none"; may be empty
	Endpoints []Endpoint    `json:"endpoints"`
	Limits    NetworkLimits `json:"limits,omitzero"`
}

// Endpoint is one name that a sandbox can reach, at some ports.
type Endpoint struct {
	Host  string `json:"host"`            // a DNS name
	Ports []int  `json:"ports,omitempty"` // default DefaultPort
	// Address is the operator's word that the name is there, also at a private or
	// loopback address. Otherwise the host looks the name up, and goes to public
	// addresses only.
	Address string `json:"address,omitempty"`
}

// NetworkLimits bound what goes on with all endpoints together. A zero field means the
// default (DefaultNetworkLimits), never infinity.
type NetworkLimits struct {
	Connections int64 `json:"connections,omitempty"` // at once
	BytesUp     int64 `json:"bytes_up,omitempty"`    // out of the sandbox, in all its life
	BytesDown   int64 `json:"bytes_down,omitempty"`  // into it
}

// Bounds on a declaration.
const (
	DefaultPort  = 443
	MaxEndpoints = 32
	MaxDoors     = 64 // names times ports
)

// DefaultNetworkLimits are the limits of who asks for none.
func DefaultNetworkLimits() NetworkLimits {
	return NetworkLimits{Connections: 64, BytesUp: 1 << 30, BytesDown: 8 << 30}
}

// maxNetworkLimits are the most that can be asked for.
var maxNetworkLimits = NetworkLimits{Connections: 1024, BytesUp: 1 << 40, BytesDown: 1 << 40}

// WithDefaults returns l with the defaults filled in.
func (l NetworkLimits) WithDefaults() NetworkLimits {
	d := DefaultNetworkLimits()
	return NetworkLimits{
		Connections: cmp.Or(l.Connections, d.Connections), BytesUp: cmp.Or(l.BytesUp, d.BytesUp), BytesDown: cmp.Or(l.BytesDown, d.BytesDown),
	}
}

// IsZero says whether nothing was said, for JSON.
func (n Network) IsZero() bool {
	return n.Mode == "" && n.Endpoints == nil && n.Limits == NetworkLimits{}
}

// None says whether nothing can be reached.
func (n Network) None() bool { return len(n.Endpoints) == 0 }

// Canonical is the one reading of a declaration: every name lower-case and once, its
// ports in order and without repetition, its address in one form; limits complete where
// there are endpoints. What has another reading is refused, with the field.
func (n Network) Canonical() (Network, error) {
	if n.Mode != "" && n.Mode != NetworkNone {
		return Network{}, &Error{
			Code: CodeSpecInvalid, Field: "network",
			Message: fmt.Sprintf("no network mode \"%s\"", SafeText(n.Mode, 60)),
			Hint:    `write "none", or declare what can be reached: {"endpoints": [{"host": "api.example.com"}]}`,
		}
	}
	if n.None() {
		if n.Limits != (NetworkLimits{}) {
			return Network{}, specError("network.limits", "limits without endpoints limit nothing").WithHint("declare endpoints, or leave network out")
		}
		return Network{Mode: NetworkNone}, nil
	}
	if n.Mode != "" {
		return Network{}, specError("network", `is "none" and has endpoints`).WithHint(`leave out one of them`)
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
	doors := 0
	for _, e := range out.Endpoints {
		doors += len(e.Ports)
	}
	if doors > MaxDoors {
		return Network{}, tooLarge("network.endpoints", int64(doors), MaxDoors)
	}
	return out, nil
}

// add adds one endpoint to those that are canonical already.
func (n *Network) add(field string, e Endpoint) error {
	e, err := e.canonical(field)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(n.Endpoints, func(have Endpoint) bool { return have.Host == e.Host })
	if at < 0 {
		n.Endpoints = append(n.Endpoints, e)
		return nil
	}
	have := &n.Endpoints[at]
	if have.Address != e.Address {
		return specError(field+".address", e.Host+" is declared twice, at different addresses").WithHint("give the second one another name")
	}
	have.Ports = append(slices.Clone(have.Ports), e.Ports...)
	slices.Sort(have.Ports)
	have.Ports = slices.Compact(have.Ports)
	return nil
}

// canonical is the one reading of an endpoint.
func (e Endpoint) canonical(field string) (Endpoint, error) {
	host, err := CanonicalHost(e.Host)
	if err != nil {
		return Endpoint{}, AsError(err).WithField(field + ".host")
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

// ParseEndpoint reads what a command line or a configuration says of one endpoint:
// HOST[:PORT[,PORT…]][=ADDRESS]. What it returns is checked by Canonical.
func ParseEndpoint(text string) (Endpoint, error) {
	if len(text) > maxEndpointText {
		return Endpoint{}, specError("", "is too long for an endpoint")
	}
	if rest, ok := cutScheme(text); ok {
		return Endpoint{}, specError("", fmt.Sprintf("\"%s\" is no endpoint", SafeText(text, 80))).
			WithHint("write HOST, HOST:PORT or HOST:PORT=ADDRESS, such as " + rest + "; methods and paths cannot be restricted yet")
	}
	text, address, given := strings.Cut(text, "=")
	if given && address == "" {
		return Endpoint{}, specError("", "there is no address behind =").WithHint("write HOST:PORT=10.0.0.7")
	}
	host, ports, some := strings.Cut(text, ":")
	e := Endpoint{Host: host, Address: address}
	if !some {
		return e, nil
	}
	for p := range strings.SplitSeq(ports, ",") {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 || p[0] == '+' {
			return Endpoint{}, specError("", fmt.Sprintf("in \"%s\", \"%s\" is no port", SafeText(text, 80), SafeText(p, 40))).WithHint("write HOST:PORT with a port of 1 to 65535")
		}
		e.Ports = append(e.Ports, int(n))
	}
	return e, nil
}

// ParseAllowed is ParseEndpoint for an operator's list: the host may be a pattern
// (CanonicalPattern), and everything is checked.
func ParseAllowed(text string) (Endpoint, error) {
	e, err := ParseEndpoint(text)
	if err != nil {
		return Endpoint{}, err
	}
	if e.Host, err = CanonicalPattern(e.Host); err != nil {
		return Endpoint{}, err
	}
	if strings.HasPrefix(e.Host, "*.") && e.Address != "" {
		return Endpoint{}, specError("", "many names cannot be at one address").WithHint("write each name by itself")
	}
	pattern := e.Host
	e.Host = strings.TrimPrefix(e.Host, "*.")
	if e, err = e.canonical(""); err != nil {
		return Endpoint{}, AsError(err).WithField("")
	}
	e.Host = pattern
	return e, nil
}

const maxEndpointText = 600

// cutScheme says whether a text looks like a URL, or a method and one, and what its
// host may be.
func cutScheme(text string) (host string, ok bool) {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "", false
	}
	host = rest[:min(len(rest), strings.IndexAny(rest+"/", "/?#"))]
	if _, err := CanonicalHost(host); err != nil {
		host = "api.example.com"
	}
	return host, true
}

// String says an endpoint as ParseEndpoint reads it.
func (e Endpoint) String() string {
	text := e.Host
	for i, p := range e.Ports {
		sep := ","
		if i == 0 {
			sep = ":"
		}
		text += sep + strconv.Itoa(p)
	}
	if e.Address != "" {
		text += "=" + e.Address
	}
	return text
}
