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

// sysAccept is accept4(2) on a listener that never blocks; what it returns does not
// either.
func sysAccept(fd uintptr) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, fd, 0, 0, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, 0)
	return int(n), errno
}

// sigaction is the kernel's struct sigaction.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

func (a sigaction) set(sig syscall.Signal) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&a)), 0, 8, 0, 0)
	return errno
}

// ignore makes the kernel drop a signal, if it can be dropped.
func ignore(sig syscall.Signal) { _ = sigaction{handler: 1}.set(sig) }

// What the handler of SIGCHLD uses: the eventfd, and what it adds.
var (
	childEvents int32      //nolint:unused // the assembly reads it
	one         uint64 = 1 //nolint:unused // likewise
)

// Flags of a handler, see sigaction(2).
const (
	saNoCldStop = 0x1
	saRestorer  = 0x4000000
	saOnStack   = 0x8000000
	saRestart   = 0x10000000
)

// signalAddresses returns where the assembly's handler of SIGCHLD is, and what
// handlers return to.
//
//go:noescape
func signalAddresses() (handler, restorer uintptr)

// countChildren makes each SIGCHLD add one to an eventfd: to wait for children
// with a system call would take a thread.
func countChildren(eventfd int) error {
	childEvents = int32(eventfd) //nolint:gosec // a descriptor
	handler, restorer := signalAddresses()
	action := sigaction{handler: handler, flags: saNoCldStop | saOnStack | saRestart | saRestorer, restorer: restorer}
	if errno := action.set(unix.SIGCHLD); errno != 0 {
		return errno
	}
	return nil
}

// fprog is the kernel's struct sock_fprog.
type fprog struct {
	length uint16
	filter *byte
}

// installFilter has the kernel filter the system calls of all threads by a program, from
// now on and for ever. It takes no_new_privs, and fails when a thread has not got it.
func installFilter(program []byte) error {
	f := fprog{uint16(len(program) / filterInstruction), unsafe.SliceData(program)} //nolint:gosec // at most BPF_MAXINSNS
	thread, err := call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)), 0, 0)
	if err == nil && thread != 0 {
		err = unix.ESRCH // a thread that has a filter of its own
	}
	return err
}
