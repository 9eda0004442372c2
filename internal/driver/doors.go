package driver

import (
	"fmt"
	"net/netip"
	"slices"

	"pinfold/sandbox"
)

// Door is one declared endpoint at one of its ports: a name that has a loopback address
// of its own inside. What programs connect to there arrives at the host, which decides by
// the door through which it came.
type Door struct {
	Host string // canonical
	At   netip.AddrPort
}

// doorAddress is where the doors of the endpoint of that index are. Nothing else in a
// sandbox is there: programs that want an address of loopback's take 127.0.0.1.
func doorAddress(index int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 66, 0, byte(index + 2)}) //nolint:gosec // at most sandbox.MaxEndpoints
}

// doorsOf says which doors a machine of the spec has, or refuses what the driver of the
// report cannot give.
func doorsOf(spec sandbox.MachineSpec, report Report) ([]Door, error) {
	n, err := spec.Network.Canonical()
	if err != nil || n.None() {
		return nil, err
	}
	if i := slices.Index(spec.Require, sandbox.FeatureNetworkNone); i >= 0 {
		return nil, (&sandbox.Error{
			Code: sandbox.CodeRequirementUnmet, Field: fmt.Sprintf("require[%d]", i),
			Message: "network:none is required, and endpoints are declared that can be reached",
		}).WithAdvice(sandbox.Advise("%s, or require "+sandbox.FeatureNetwork, sandbox.Omit("network")))
	}
	can := slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Feature == sandbox.FeatureNetwork && f.Answer == Yes })
	if !can && report.Blocked == nil {
		return nil, (&sandbox.Error{
			Code: sandbox.CodeNetworkUnsupported, Field: "network",
			Message: fmt.Sprintf("the %s driver makes sandboxes without any network only", report.Driver),
		}).WithAdvice(sandbox.Advise("%s, or take the native driver", sandbox.Omit("network")))
	}
	var doors []Door
	for i, e := range n.Endpoints {
		for _, p := range e.Ports {
			doors = append(doors, Door{Host: e.Host, At: netip.AddrPortFrom(doorAddress(i), uint16(p))}) //nolint:gosec // Canonical bounds it
		}
	}
	return doors, nil
}

// notThis is the feature of a network other than the one that was asked for: a sandbox
// has no network, or the declared one.
func notThis(n sandbox.Network) string {
	if n.None() {
		return sandbox.FeatureNetwork
	}
	return sandbox.FeatureNetworkNone
}
