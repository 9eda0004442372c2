package cli

import (
	"slices"

	"pinfold/sandbox"
)

// wish is what a run on this host asks for that not every program and engine has.
type wish struct {
	template, driver, isolation, profile string
	gate, scan                           bool
	policy                               string // the file of one
	// rule holds it beside the policy: of a profile that has a person asked. nil: there is none.
	rule *sandbox.PolicyRule
}

// everywhere are the drivers that every engine of this program has.
var everywhere = []string{"", sandbox.DriverAuto, "native", "process"}

// stronger says that it takes a driver that is not asked about this host for every run:
// that may mean to boot a virtual machine.
func (w wish) stronger() bool {
	if !slices.Contains(everywhere, w.driver) {
		return true
	}
	return w.isolation != sandbox.LevelNamespace && sandbox.LevelAtLeast(w.isolation, sandbox.LevelNamespace)
}
