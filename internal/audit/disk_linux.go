package audit

import (
	"errors"
	"os"
	"syscall"
)

const keepSize = 1 // FALLOC_FL_KEEP_SIZE

// reserve takes room on the disk behind a file's end, so that a disk that fills up does
// so for others first. A file system that cannot is no fault.
func reserve(f *os.File, from, bytes int64) error {
	err := syscall.Fallocate(int(f.Fd()), keepSize, from, bytes)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINTR) {
		return nil
	}
	return err
}

// flush brings a file's content to the disk, and of its description what reading it takes.
func flush(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
