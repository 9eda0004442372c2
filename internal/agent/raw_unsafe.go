//go:build linux

package agent

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawIO is read(2) or write(2) on a descriptor that never blocks. Unlike
// syscall.Read it does not tell the scheduler, which therefore never needs
// another thread for it.
func rawIO(trap, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// defaultAction gives a signal its default action. For pid 1 of a pid
// namespace that is to be ignored, when it comes from inside.
func defaultAction(sig syscall.Signal) {
	var action [4]uint64 // struct sigaction: SIG_DFL, no flags, no restorer, empty mask
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
