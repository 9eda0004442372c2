//go:build linux || darwin

package egress

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may have open.
func openFiles() int64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int64(min(l.Cur, math.MaxInt64)) //nolint:gosec // bounded
}
