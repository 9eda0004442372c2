//go:build !linux

package bench

import (
	"errors"
	"time"
)

// kernelFloor has no namespaces to measure.
func kernelFloor() (time.Duration, error) { return 0, errors.ErrUnsupported }
