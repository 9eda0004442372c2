//go:build linux && amd64

package qemu

import (
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// A virtual machine's doors are its agent's, whatever its own kernel says that it could open.
func TestReportOfDoors(t *testing.T) {
	inside := driver.Report{Findings: []driver.Finding{
		{Feature: sandbox.FeatureNetworkNone, Answer: driver.Yes}, {Feature: sandbox.FeatureNetwork, Answer: driver.Yes, Because: "x"},
	}}
	if r := (&Driver{}).reported(inside); len(r.Findings) != 2 || !strings.Contains(r.Findings[1].Because, "the agent listens") {
		t.Errorf("%+v", r.Findings)
	}
}
