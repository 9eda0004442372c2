//go:build linux

package landlock

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ABI asks the kernel for its level and which of Landlock's known faults it has
// repaired (a bit for each, see "Errata" in the kernel's documentation; 0 also
// where the kernel cannot say). It changes nothing.
//
// The error wraps errors.ErrUnsupported when this kernel certainly has no
// Landlock in use (not built in, or not switched on at boot); after any other
// error it could not be told.
func ABI() (level, errata int, err error) {
	level, err = question(unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, 0, fmt.Errorf("landlock: not built into this kernel: %w", errors.ErrUnsupported)
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, 0, fmt.Errorf("landlock: not switched on at boot (lsm=): %w", errors.ErrUnsupported)
	case err != nil:
		return 0, 0, fmt.Errorf("landlock: %w", err)
	}
	// Kernels before 6.15 do not know the question and answer EINVAL.
	if errata, err = question(unix.LANDLOCK_CREATE_RULESET_ERRATA); err != nil {
		errata = 0
	}
	return level, errata, nil
}

func question(flag uintptr) (int, error) {
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, flag)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
