//go:build linux

package spawn

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// InNetwork runs do in the child's network namespace, on a thread that nothing else runs on
// meanwhile. That takes CAP_SYS_ADMIN in our own user namespace and in the child's. What do
// makes there, a socket for one, stays in that namespace; do must start no goroutine and
// wait for nobody: the child's lock is held, so that it cannot be waited for and its number
// given away. A child that has ended is unix.ESRCH.
func (c *Child) InNetwork(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released || c.reaped {
		return unix.ESRCH
	}
	process := c.Pidfd
	if process < 0 { // it rests
		var err error
		if process, err = unix.PidfdOpen(c.PID, 0); err != nil {
			return err
		}
		defer unix.Close(process) //nolint:errcheck // only a name
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own) //nolint:errcheck // only read
	if err := unix.Setns(process, unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = do()
	if err := unix.Setns(own, unix.CLONE_NEWNET); err != nil {
		panic("spawn: cannot go back to the own network namespace: " + err.Error())
	}
	return err
}
