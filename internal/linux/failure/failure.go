//go:build linux

// Package failure says why a driver could not do something, in the same words for every driver:
// what ran out is told apart from what the host lacks.
package failure

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
	"pinfold/internal/linux/idblock"
	"pinfold/sandbox"
)

// HintDescriptors is what to do about too many open files.
const HintDescriptors = "destroy sandboxes that are not needed, or raise the limit on open files (ulimit -n, LimitNOFILE=)"

// Of is the error of a step ("make the sandbox") that a driver could not do: resource_unavailable
// where the host or this process ran out of something, else setup_failed. A cause that has a code
// already stays what it is.
func Of(step string, err error) *sandbox.Error {
	if known := new(sandbox.Error); errors.As(err, &known) {
		return known
	}
	e := &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: fmt.Sprintf("cannot %s: %v", step, err), Err: err}
	switch {
	case errors.Is(err, unix.EMFILE):
		e.Code, e.Hint = sandbox.CodeResourceUnavailable, HintDescriptors
	case Exhausted(err):
		e.Code, e.Hint = sandbox.CodeResourceUnavailable, "destroy sandboxes that are not needed, and try again"
	default:
		return e.WithHint("run pinfold doctor to see what this host lacks")
	}
	return e
}

// Exhausted says whether the host, or this process, ran out of something.
func Exhausted(err error) bool {
	for _, e := range []error{idblock.ErrNone, unix.ENOSPC, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// NoDescriptors refuses a machine for which there are no descriptors; nil while there are some.
// The last ones are not for new machines: those that there are must still be watched and ended,
// and clients must still be answered.
func NoDescriptors() error {
	ok, limit := highfd.Room()
	if ok {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeResourceUnavailable, Message: fmt.Sprintf("no descriptors are left for another sandbox, of the %d that this process may have", limit),
		Hint: HintDescriptors, Err: unix.EMFILE,
	}
}
