package profile

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// One CPU is one.
func TestSummaryCountsCPUs(t *testing.T) {
	for cpus, want := range map[float64]string{1: " 1 CPU, ", 0.5: " 0.5 CPUs, ", 2: " 2 CPUs, "} {
		if got := summary(sandbox.Tool{BlastRadius: sandbox.BlastRadius{CPUs: cpus}}); !strings.Contains(got, want) {
			t.Errorf("%v: %q", cpus, got)
		}
	}
}
