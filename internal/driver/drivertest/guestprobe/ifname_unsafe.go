//go:build linux

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifName returns the name of the network interface with that index
// (netdevice(7)).
func ifName(fd, index int) (string, error) {
	var request struct {
		name  [unix.IFNAMSIZ]byte
		index int32
		_     [20]byte
	}
	request.index = int32(index) //nolint:gosec // at most 255
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCGIFNAME, uintptr(unsafe.Pointer(&request)))
	if e != 0 {
		return "", e
	}
	return unix.ByteSliceToString(request.name[:]), nil
}
