//go:build linux

package agent

import "golang.org/x/sys/unix"

const sysFstatatNumber = unix.SYS_FSTATAT
