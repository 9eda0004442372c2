//go:build linux && amd64

package qemu

import (
	"testing"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// What a virtual machine's own kernel could open inside is no way out of it.
func TestReportHasNoDoors(t *testing.T) {
	inside := driver.Report{Findings: []driver.Finding{
		{Feature: sandbox.FeatureNetworkNone, Answer: driver.Yes}, {Feature: sandbox.FeatureNetwork, Answer: driver.Yes},
	}}
	if r := (&Driver{}).reported(inside); len(r.Findings) != 1 || r.Findings[0].Feature != sandbox.FeatureNetworkNone {
		t.Errorf("%+v", r.Findings)
	}
}
