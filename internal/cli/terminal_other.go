//go:build !linux

package cli

import "syscall"

// getTerminal is the ioctl request for a terminal's settings.
const getTerminal = syscall.TIOCGETA
