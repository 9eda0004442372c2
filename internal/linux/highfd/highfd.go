// Package highfd keeps descriptors that live long out of the way of those that
// do not. A new process gets a copy of ours up to the highest that it needs
// (package spawn), so what a process has to copy should not grow with what other
// sandboxes hold open.
package highfd

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// few is how many descriptors are no burden to copy. A process that never
	// has more keeps a small table, which the kernel enlarges only after a wait
	// for every CPU.
	few = 64
	// from is where the long-lived ones go: above what a busy server has open
	// for its clients.
	from = 4096
)

// Move gives an open descriptor a high number and returns it; the old number is
// closed. Where few are open, or the limit on open files leaves no room, it
// stays what it is. The result is close-on-exec.
func Move(fd int) int {
	if fd < few || fd >= from {
		return fd
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur < 2*from {
		return fd
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, from)
	if err != nil || high > math.MaxInt32 {
		return fd
	}
	moved.Store(true)
	_ = unix.Close(fd)
	return high
}

// moved is set once a descriptor of this process has a high number.
var moved atomic.Bool

// Reserve is how many descriptors are kept for what goes on already (counters that
// are read, clients that come, the database) and not given to new sandboxes, where
// so many may be open at once.
func Reserve(limit uint64) uint64 { return min(max(limit/16, 32), 1024) }

// Room says whether more than the reserve is left, and how many may be open at
// once. It looks for the lowest numbers that are free: long-lived descriptors fill
// those to which Move goes from below, and then the others.
func Room() (ok bool, limit uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return true, math.MaxUint64
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, l.Cur
	}
	defer unix.Close(fd) //nolint:errcheck // only a number was wanted
	if fd < few && !moved.Load() {
		return true, l.Cur // and no reason to have the table enlarged
	}
	reserve := Reserve(l.Cur)
	if l.Cur < 2*from {
		return lowest(fd, 0)+reserve < l.Cur, l.Cur
	}
	return lowest(fd, from)+reserve < l.Cur || lowest(fd, few)+reserve < from, l.Cur
}

// lowest is the lowest number of at least first that is free.
func lowest(fd, first int) uint64 {
	next, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, first)
	if err != nil {
		return math.MaxUint64 / 2
	}
	_ = unix.Close(next)
	return uint64(next) //nolint:gosec // a descriptor
}
