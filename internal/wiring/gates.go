//go:build linux && !lean

package wiring

import (
	"pinfold/internal/engine/execution"
	"pinfold/internal/gate"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// newGate makes the gate of a run.
func newGate(g sandbox.Gate, secrets []secret.Secret) (execution.Gate, error) {
	made, err := gate.New(g, secrets)
	if err != nil {
		return nil, err
	}
	return made, nil
}
