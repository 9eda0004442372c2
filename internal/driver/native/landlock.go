//go:build linux

package native

import (
	"errors"

	"pinfold/internal/linux/spawn"
)

type landlockRules struct{ level int }

func newLandlockRules() (*landlockRules, error) { return nil, errors.ErrUnsupported }

func (*landlockRules) apply(*spawn.Program, []string) {}
