package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Levels of isolation: what a program has to break to reach the host. A request may name
// the least that it accepts; unless it names a level or a driver, nothing below
// LevelNamespace is taken.
const (
	LevelProcess   = "process"   // a process of the host's with everything taken away that one can be denied
	LevelNamespace = "namespace" // its own view of the host, made by the kernel
	LevelContainer = "container" // the same, made by a container engine
	LevelKernel    = "kernel"    // a kernel of its own in user space
	LevelVM        = "vm"        // a virtual machine
)

// levels are in their order, the weakest first.
var levels = []string{LevelProcess, LevelNamespace, LevelContainer, LevelKernel, LevelVM}

// IsolationLevels lists the levels, the weakest first.
func IsolationLevels() []string { return slices.Clone(levels) }

// LevelAtLeast says whether a level is another one or stronger. What is no level is below
// all.
func LevelAtLeast(have, least string) bool {
	return slices.Index(levels, have) >= slices.Index(levels, least)
}

// validateLevel checks the name of a level. "" is none.
func validateLevel(level string) error {
	if level == "" || slices.Contains(levels, level) {
		return nil
	}
	return &Error{
		Code: CodeSpecInvalid, Field: "isolation", Message: fmt.Sprintf("no level of isolation \"%s\"", SafeText(level, 60)),
		Hint: "the levels are " + strings.Join(levels, ", ") + ", the weakest first",
	}
}
