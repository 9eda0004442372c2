//go:build !linux

package bench

import (
	"errors"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func endsWithUs() *syscall.SysProcAttr { return ownGroup() }

func unmount(string) error { return errors.ErrUnsupported }
