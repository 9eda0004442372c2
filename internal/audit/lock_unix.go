//go:build unix

package audit

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock that the kernel drops when the process dies, however it dies.
func lockFile(f *os.File) (taken bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
