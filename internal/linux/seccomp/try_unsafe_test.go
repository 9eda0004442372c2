//go:build linux

package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pushByte makes one ioctl with a pointer to a byte. The request keeps all its
// 64 bits.
func pushByte(fd int, request uintptr) string {
	b := []byte{'\n'} // a whole line, so that it counts as input
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&b[0])))
	if e != 0 {
		return unix.ErrnoName(e)
	}
	return "ok"
}

// ring asks for an io_uring.
func ring() string {
	params := make([]byte, 120)
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
	if e != 0 {
		return unix.ErrnoName(e)
	}
	unix.Close(int(fd))
	return "ok"
}

// int80 makes getpid as an i386 call from a 64-bit program.
func int80() string {
	if runtime.GOARCH != "amd64" {
		return "no such instruction"
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err.Error()
	}
	// mov eax, 20 (getpid of i386); int 0x80; ret
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3})
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err.Error()
	}
	code := unsafe.Pointer(&page[0])
	closure := unsafe.Pointer(&code) // a Go function value points to its code's address
	getpid := *(*func() int32)(unsafe.Pointer(&closure))
	return fmt.Sprint(int(getpid()) == unix.Getpid())
}
