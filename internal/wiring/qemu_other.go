//go:build !lean && !linux

package wiring

import (
	"pinfold/internal/config"
	"pinfold/internal/driver"
)

// machines has no driver to offer.
func machines(*config.Config) []driver.Driver { return nil }
