//go:build !amd64

package kvm

import "errors"

// Try is not written for this processor.
func Try() (failed Step, err error) {
	return StepOpen, errors.ErrUnsupported
}
