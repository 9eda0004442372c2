//go:build linux

package agent

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls of which the Go runtime is not told (see the package comment),
// with the names and the meaning of those in golang.org/x/sys/unix. They
// wait for the kernel, and all goroutines with them.

// call makes a system call. Pointers among its arguments are written as
// uintptr(unsafe.Pointer(p)) in the call itself, and stay valid during it.
//
//go:uintptrescapes
func call(trap, a, b, c, d, e uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(trap, a, b, c, d, e, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// on makes a system call on a path.
func on(trap uintptr, dir int, path string, c, d uintptr) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	return call(trap, uintptr(dir), uintptr(unsafe.Pointer(p)), c, d, 0)
}

// with makes a system call on a buffer.
func with(trap uintptr, fd int, p []byte, d uintptr) (int, error) {
	return call(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), d, 0)
}

// sysOpen is open(2).
func sysOpen(path string, flags int, mode uint32) (int, error) {
	return sysOpenat(unix.AT_FDCWD, path, flags, mode)
}

// sysOpenat is openat(2).
func sysOpenat(dir int, path string, flags int, mode uint32) (int, error) {
	return on(unix.SYS_OPENAT, dir, path, uintptr(flags|unix.O_LARGEFILE), uintptr(mode))
}

// sysOpenat2 is openat2(2).
func sysOpenat2(dir int, path string, how *unix.OpenHow) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	return call(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(how)), unix.SizeofOpenHow, 0)
}

// sysClose is close(2).
func sysClose(fd int) error {
	_, err := call(unix.SYS_CLOSE, uintptr(fd), 0, 0, 0, 0)
	return err
}

// sysDup is dup(2), with close-on-exec.
func sysDup(fd int) (int, error) {
	return call(unix.SYS_FCNTL, uintptr(fd), unix.F_DUPFD_CLOEXEC, 0, 0, 0)
}

// sysSetNonblock makes reads and writes not wait.
func sysSetNonblock(fd int) error {
	flags, err := call(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, 0, 0, 0)
	if err == nil && flags&unix.O_NONBLOCK == 0 {
		_, err = call(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFL, uintptr(flags|unix.O_NONBLOCK), 0, 0)
	}
	return err
}

// sysPipe2 is pipe2(2).
func sysPipe2(ends []int, flags int) error {
	var p [2]int32
	_, err := call(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&p)), uintptr(flags), 0, 0, 0)
	ends[0], ends[1] = int(p[0]), int(p[1])
	return err
}

// sysRead is read(2).
func sysRead(fd int, p []byte) (int, error) { return with(unix.SYS_READ, fd, p, 0) }

// sysWrite is write(2).
func sysWrite(fd int, p []byte) (int, error) { return with(unix.SYS_WRITE, fd, p, 0) }

// sysPread is pread(2).
func sysPread(fd int, p []byte, offset int64) (int, error) {
	return with(unix.SYS_PREAD64, fd, p, uintptr(offset))
}

// sysGetdents is getdents64(2).
func sysGetdents(fd int, p []byte) (int, error) { return with(unix.SYS_GETDENTS64, fd, p, 0) }

// sysRewind goes to the beginning of a file or directory.
func sysRewind(fd int) error {
	_, err := call(unix.SYS_LSEEK, uintptr(fd), 0, unix.SEEK_SET, 0, 0)
	return err
}

// sysCopyFileRange is copy_file_range(2) at the files' own offsets.
func sysCopyFileRange(in, out, n int) (int, error) {
	return call(unix.SYS_COPY_FILE_RANGE, uintptr(in), 0, uintptr(out), 0, uintptr(n))
}

// sysFstat is fstat(2).
func sysFstat(fd int, st *unix.Stat_t) error {
	_, err := call(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0, 0, 0)
	return err
}

// sysFstatat is fstatat(2).
func sysFstatat(dir int, path string, st *unix.Stat_t, flags int) error {
	p, err := unix.BytePtrFromString(path)
	if err == nil {
		_, err = call(sysFstatatNumber, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(st)), uintptr(flags), 0)
	}
	return err
}

// sysFstatfs is fstatfs(2).
func sysFstatfs(fd int, st *unix.Statfs_t) error {
	_, err := call(unix.SYS_FSTATFS, uintptr(fd), uintptr(unsafe.Pointer(st)), 0, 0, 0)
	return err
}

// sysFchown is fchown(2).
func sysFchown(fd, uid, gid int) error {
	_, err := call(unix.SYS_FCHOWN, uintptr(fd), uintptr(uid), uintptr(gid), 0, 0)
	return err
}

// sysFchmod is fchmod(2).
func sysFchmod(fd int, mode uint32) error {
	_, err := call(unix.SYS_FCHMOD, uintptr(fd), uintptr(mode), 0, 0, 0)
	return err
}

// sysFchmodat is fchmodat(2), which follows links.
func sysFchmodat(dir int, path string, mode uint32) error {
	_, err := on(unix.SYS_FCHMODAT, dir, path, uintptr(mode), 0)
	return err
}

// sysFtruncate is ftruncate(2).
func sysFtruncate(fd int, size int64) error {
	_, err := call(unix.SYS_FTRUNCATE, uintptr(fd), uintptr(size), 0, 0, 0)
	return err
}

// sysMkdirat is mkdirat(2).
func sysMkdirat(dir int, path string, mode uint32) error {
	_, err := on(unix.SYS_MKDIRAT, dir, path, uintptr(mode), 0)
	return err
}

// sysUnlinkat is unlinkat(2).
func sysUnlinkat(dir int, path string, flags int) error {
	_, err := on(unix.SYS_UNLINKAT, dir, path, uintptr(flags), 0)
	return err
}

// sysRenameat2 is renameat2(2).
func sysRenameat2(fromDir int, from string, toDir int, to string, flags uint) error {
	p, err := unix.BytePtrFromString(from)
	if err != nil {
		return err
	}
	q, err := unix.BytePtrFromString(to)
	if err != nil {
		return err
	}
	_, err = call(unix.SYS_RENAMEAT2, uintptr(fromDir), uintptr(unsafe.Pointer(p)), uintptr(toDir), uintptr(unsafe.Pointer(q)), uintptr(flags))
	return err
}

// sysReadlinkat is readlinkat(2).
func sysReadlinkat(dir int, path string, b []byte) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	return call(unix.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
}

// sysInotifyAddWatch is inotify_add_watch(2).
func sysInotifyAddWatch(fd int, path string, mask uint32) (int, error) {
	return on(unix.SYS_INOTIFY_ADD_WATCH, fd, path, uintptr(mask), 0)
}

// sysIoctl is ioctl(2) with a number.
func sysIoctl(fd int, request uint, n int) (int, error) {
	return call(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(n), 0, 0)
}

// sysIoctlPointer is ioctl(2) with the address of a number.
func sysIoctlPointer(fd int, request uint, n *int32) error {
	_, err := call(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(n)), 0, 0)
	return err
}

// sysKill is kill(2).
func sysKill(pid int, sig unix.Signal) error {
	_, err := call(unix.SYS_KILL, uintptr(pid), uintptr(sig), 0, 0, 0)
	return err
}

// sysWaitid looks for any child, without waiting and without collecting it.
func sysWaitid() error {
	const everyone = 0 // P_ALL
	_, err := call(unix.SYS_WAITID, everyone, 0, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, 0)
	return err
}

// sysWait4 is wait4(2).
func sysWait4(pid int, status *unix.WaitStatus, options int, usage *unix.Rusage) (int, error) {
	var s int32
	n, err := call(unix.SYS_WAIT4, uintptr(pid), uintptr(unsafe.Pointer(&s)), uintptr(options), uintptr(unsafe.Pointer(usage)), 0)
	*status = unix.WaitStatus(s) //nolint:gosec // the bits are meant
	return n, err
}

func sysSchedSetaffinity(pid int, set []byte) error {
	_, err := call(unix.SYS_SCHED_SETAFFINITY, uintptr(pid), uintptr(len(set)), uintptr(unsafe.Pointer(unsafe.SliceData(set))), 0, 0)
	return err
}

// sysStatfs asks about the file system of a path.
func sysStatfs(path string, s *unix.Statfs_t) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	_, err = call(unix.SYS_STATFS, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(s)), 0, 0, 0)
	return err
}

// sysPending returns how many bytes can be read.
func sysPending(fd int) int {
	var n int32
	_, _ = call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCINQ, uintptr(unsafe.Pointer(&n)), 0, 0)
	return int(n)
}

// sysWait waits until there is something to read.
func sysWait(fd int) error {
	wanted := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} //nolint:gosec // a descriptor
	for {
		_, err := call(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&wanted)), 1, 0, 0, 0)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
