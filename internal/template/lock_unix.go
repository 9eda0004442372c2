//go:build unix

package template

import (
	"errors"
	"os"
	"syscall"
)

// flock takes a lock of a file, which the kernel drops with the file's last descriptor.
// taken is false when another has it and wait is false.
func flock(f *os.File, alone, wait bool) (taken bool, err error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case errors.Is(err, syscall.EINTR):
		default:
			return false, err
		}
	}
}

// ownedByUs says whether the file is this user's.
func ownedByUs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// links says how many names a file has, and what tells it from others.
func links(info os.FileInfo) (count uint64, inode [2]uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, inode
	}
	return uint64(st.Nlink), [2]uint64{uint64(st.Dev), st.Ino} //nolint:gosec,unconvert,nolintlint // their types differ between systems
}
