//go:build linux

package agent

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest signal number of Linux.
const lastSignal = 64

// kept says which signals the Go runtime must go on handling: that a child has
// ended, its own preemption, and, except in pid 1, the report of a panic (in
// another process nothing protects us anyway).
func kept(sig unix.Signal) bool {
	switch sig {
	case unix.SIGCHLD, unix.SIGURG:
		return true
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE:
		return os.Getpid() != 1
	}
	return false
}

// harden makes the process hard to look into and to kill from beside it.
//
// Signals are ignored one by one, although pid 1 is said to be safe from those
// with the default action: one that arrives while the first thread has it
// blocked (because it is in a handler) ends the process all the same.
func harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	for s := unix.Signal(1); s <= lastSignal; s++ {
		if !kept(s) {
			ignore(s)
		}
	}
	return allDescriptors()
}

// unbound returns the capabilities that are not in the bounding set. To drop
// one again does nothing and takes the kernel a copy of all credentials.
func unbound() []int {
	var list []int
	for c := range 64 {
		in, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, uintptr(c), 0)
		if errno != 0 {
			break // the kernel knows no more
		}
		if in == 0 {
			list = append(list, c)
		}
	}
	return list
}

// allDescriptors raises the limit on open descriptors as far as it may be: a
// driver may have made it small to speed up the start.
func allDescriptors() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// oneThread makes the runtime use one thread at a time, unless the driver's
// environment has already. See the package comment.
func oneThread() {
	if runtime.GOMAXPROCS(0) > 1 {
		runtime.GOMAXPROCS(1)
	}
}
