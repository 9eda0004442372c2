//go:build !linux

package cli

import "syscall"

// The ioctl requests for a terminal's settings.
const (
	getTerminal = syscall.TIOCGETA
	setTerminal = syscall.TIOCSETA
)
