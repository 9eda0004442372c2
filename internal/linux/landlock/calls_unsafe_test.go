//go:build linux

package landlock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func createRuleset(attr []byte) (int, error) {
	fd, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr[0])), uintptr(len(attr)), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

func addRule(set int, attr []byte) error {
	_, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), RulePathBeneath, uintptr(unsafe.Pointer(&attr[0])), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
