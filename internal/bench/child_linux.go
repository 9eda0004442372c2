package bench

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from the programs that are measured.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endsWithUs also ends the program when we die.
func endsWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// unmount takes away what a daemon left mounted below our directory.
func unmount(path string) error { return syscall.Unmount(path, syscall.MNT_DETACH) }
