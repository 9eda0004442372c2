package driver

import (
	"fmt"
	"net/netip"
	"slices"

	"pinfold/internal/image"

	"pinfold/sandbox"
)

// Door is one declared endpoint at one of its ports: a name that has a loopback address
// of its own inside. What programs connect to there arrives at the host, which decides by
// the door through which it came. A proxy is a door, too: for all that is declared.
type Door struct {
	Host  string // canonical; of a proxy where it is
	At    netip.AddrPort
	Proxy string // what is spoken there: "http", "socks" or, of an endpoint, ""
}

// Where programs of a machine with doors look names up, and the proxies are.
var (
	Resolver   = netip.MustParseAddrPort("127.66.0.1:53")
	HTTPProxy  = netip.MustParseAddrPort("127.66.0.1:3128")
	SOCKSProxy = netip.MustParseAddrPort("127.66.0.1:1080")
)

// proxies are the doors that every machine with doors has.
func proxies() []Door {
	return []Door{
		{Host: HTTPProxy.Addr().String(), At: HTTPProxy, Proxy: "http"}, {Host: SOCKSProxy.Addr().String(), At: SOCKSProxy, Proxy: "socks"},
	}
}

// Packets is a socket inside.
type Packets interface {
	ReadFrom(b []byte) (n int, from netip.AddrPort, err error)
	WriteTo(b []byte, to netip.AddrPort) error
	Close() error
}

// doorAddress is where the doors of the host of that index are. Nothing else in a
// sandbox is there: programs that want an address of loopback's take 127.0.0.1.
func doorAddress(index int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 66, 0, byte(index + 2)}) //nolint:gosec // at most sandbox.MaxEndpoints
}

// Names are the declared names and where they are.
func (p Plan) Names() (names []image.Name) {
	for _, d := range p.Doors {
		if d.Proxy != "" || sandbox.IsPattern(d.Host) { // which has no name, or whose the resolver answers
			continue
		}
		n := image.Name{Host: d.Host, At: d.At.Addr()}
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// Inside is what the machine shows: the template, and where it has doors what programs need
// to find the names, and to trust whom they must.
func (p Plan) Inside() image.Template {
	t := p.Template
	if len(p.Doors) > 0 {
		t = t.WithNames(p.Names(), Resolver.Addr())
	}
	if p.Authority != nil {
		t = t.WithAuthority(p.Authority, p.Network.Ruled())
	}
	return t
}

// Env are the variables of all programs inside, by which they learn of the authority.
func (p Plan) Env() map[string]string {
	if p.Authority == nil {
		return map[string]string{}
	}
	return image.AuthorityEnv()
}

// Reaching is the plan of the same machine when it has been given the doors of another plan.
func (p Plan) Reaching(other Plan) Plan {
	p.Network, p.Doors = other.Network, other.Doors
	p.Posture.Enforced = slices.Clone(p.Posture.Enforced)
	for i, f := range p.Posture.Enforced {
		if f == sandbox.FeatureNetworkNone {
			p.Posture.Enforced[i] = sandbox.FeatureNetwork
		}
	}
	return p
}

// doorsOf says which doors a machine has, or refuses what the driver of the report cannot
// give. The spec's network is canonical.
func doorsOf(spec sandbox.MachineSpec, report Report) ([]Door, error) {
	n := spec.Network
	if n.None() && !n.Asks() {
		return nil, nil
	}
	if i := slices.Index(spec.Require, sandbox.FeatureNetworkNone); i >= 0 {
		return nil, (&sandbox.Error{
			Code: sandbox.CodeRequirementUnmet, Field: fmt.Sprintf("require[%d]", i),
			Message: "network:none is required, and endpoints are declared that can be reached, or names are to be written down",
		}).WithAdvice(sandbox.Advise("%s, or require "+sandbox.FeatureNetwork, sandbox.Omit("network")))
	}
	can := slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Feature == sandbox.FeatureNetwork && f.Answer == Yes })
	if !can && report.Blocked == nil {
		return nil, (&sandbox.Error{
			Code: sandbox.CodeNetworkUnsupported, Field: "network",
			Message: fmt.Sprintf("the %s driver makes sandboxes without any network only", report.Driver),
		}).WithAdvice(sandbox.Advise("%s, or take another driver than process", sandbox.Omit("network")))
	}
	var doors []Door
	hosts := map[string]netip.Addr{}
	for _, e := range n.Endpoints { // a host may be there more than once
		if _, known := hosts[e.Host]; !known {
			hosts[e.Host] = doorAddress(len(hosts))
		}
		for _, p := range e.Ports {
			d := Door{Host: e.Host, At: netip.AddrPortFrom(hosts[e.Host], uint16(p))} //nolint:gosec // Canonical bounds it
			if !slices.Contains(doors, d) {
				doors = append(doors, d)
			}
		}
	}
	return append(doors, proxies()...), nil
}

// notThis is the feature of a network other than the one that was asked for: a sandbox
// has no network, or the declared one.
func notThis(n sandbox.Network) string {
	if n.None() && !n.Asks() {
		return sandbox.FeatureNetwork
	}
	return sandbox.FeatureNetworkNone
}
