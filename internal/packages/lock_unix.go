//go:build unix

package packages

import (
	"errors"
	"os"
	"syscall"
)

// flock locks an open directory, alone or with others, if that is possible at once.
func flock(f *os.File, alone bool) (taken bool, err error) {
	how := syscall.LOCK_SH | syscall.LOCK_NB
	if alone {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	err = syscall.Flock(int(f.Fd()), how)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
