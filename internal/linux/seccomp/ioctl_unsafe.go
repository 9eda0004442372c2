//go:build linux

package seccomp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl calls ioctl(2) with a buffer that is large enough for the request.
func ioctl(fd, request uintptr, buffer []byte) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&buffer[0])))
	if e != 0 {
		return e
	}
	return nil
}

// operate calls seccomp(2). It is used for questions only: every operation
// here either fills the buffer or fails.
func operate(operation, flags uintptr, buffer []byte) error {
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, operation, flags, uintptr(unsafe.Pointer(unsafe.SliceData(buffer))))
	if e != 0 {
		return e
	}
	return nil
}
