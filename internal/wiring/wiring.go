// Package wiring puts an engine together with the drivers and templates that
// there are. It is the one place besides the drivers' own tests that chooses
// drivers; the program and the library both take their engine from here, so
// that a sandbox is the same whichever of them made it.
//
// It decides nothing about sandboxes and starts nothing.
package wiring
