//go:build linux

package attacks

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerCreate makes a timer of this process, which sends SIGALRM if it is ever
// armed; it is not. id receives its number.
func timerCreate(id []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id[0])))
	if errno != 0 {
		return os.NewSyscallError("timer_create", errno)
	}
	return nil
}

func timerDelete(id []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(*(*int32)(unsafe.Pointer(&id[0]))), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("timer_delete", errno)
	}
	return nil
}
