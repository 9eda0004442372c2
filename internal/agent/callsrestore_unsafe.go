//go:build linux

package agent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysPwrite is pwrite64(2).
func sysPwrite(fd int, p []byte, offset int64) (int, error) {
	return with(unix.SYS_PWRITE64, fd, p, uintptr(offset))
}

// sysLinkat is linkat(2) without flags.
func sysLinkat(fromDir int, from string, toDir int, to string) error {
	p, err := unix.BytePtrFromString(from)
	if err != nil {
		return err
	}
	q, err := unix.BytePtrFromString(to)
	if err != nil {
		return err
	}
	_, err = call(unix.SYS_LINKAT, uintptr(fromDir), uintptr(unsafe.Pointer(p)), uintptr(toDir), uintptr(unsafe.Pointer(q)), 0)
	return err
}

// sysSymlinkat is symlinkat(2).
func sysSymlinkat(target string, dir int, path string) error {
	p, err := unix.BytePtrFromString(target)
	if err != nil {
		return err
	}
	q, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	_, err = call(unix.SYS_SYMLINKAT, uintptr(unsafe.Pointer(p)), uintptr(dir), uintptr(unsafe.Pointer(q)), 0, 0)
	return err
}

// sysFchownat is fchownat(2) of a link itself.
func sysFchownat(dir int, path string, uid, gid int) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	_, err = call(unix.SYS_FCHOWNAT, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(uid), uintptr(gid), unix.AT_SYMLINK_NOFOLLOW)
	return err
}

// modified is when a file was last used and changed, for utimensat(2).
func modified(ns int64) [2]unix.Timespec {
	t := unix.NsecToTimespec(ns)
	return [2]unix.Timespec{t, t}
}

// sysFutimens is futimens(3).
func sysFutimens(fd int, ns int64) error {
	t := modified(ns)
	_, err := call(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&t)), 0, 0)
	return err
}

// sysUtimensLink is utimensat(2) of a link itself.
func sysUtimensLink(dir int, path string, ns int64) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	t := modified(ns)
	_, err = call(unix.SYS_UTIMENSAT, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&t)), unix.AT_SYMLINK_NOFOLLOW, 0)
	return err
}
