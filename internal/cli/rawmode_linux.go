package cli

import "syscall"

// The ioctl requests for a terminal's settings.
const (
	getTerminal = syscall.TCGETS
	setTerminal = syscall.TCSETS
)
