package image

import (
	"io/fs"
	"syscall"
)

// identity tells a file from others that had its name: the inode and the time
// of the last change in nanoseconds, where the file system has them.
func identity(info fs.FileInfo) (inode uint64, changed int64) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino, s.Ctim.Nano()
	}
	return 0, 0
}
