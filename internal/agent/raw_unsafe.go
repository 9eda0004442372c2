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

// ignore makes the kernel drop a signal.
func ignore(sig syscall.Signal) {
	action := [4]uint64{1} // struct sigaction: SIG_IGN, no flags, no restorer, empty mask
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
