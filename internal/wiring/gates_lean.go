//go:build linux && lean

package wiring

import "pinfold/internal/engine/execution"

// newGate is none: the lean program hands runs with a gate over to the whole one.
var newGate execution.Gates
