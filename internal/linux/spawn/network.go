//go:build linux

package spawn

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// InNetwork runs do in the child's network namespace, on a thread that nothing else runs on
// meanwhile. That takes CAP_SYS_ADMIN in our own user namespace, in the child's and in the
// one that our own network belongs to. What do makes there, a socket for one, stays in that
// namespace; do must start no goroutine and wait for nobody: the child's lock is held, so
// that it cannot be waited for and its number given away. A child that has ended is
// unix.ESRCH.
func (c *Child) InNetwork(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released || c.reaped {
		return unix.ESRCH
	}
	if !CanVisit() {
		return fmt.Errorf("there is no way back into the own network namespace: %w", unix.EPERM)
	}
	process := c.Pidfd
	if process < 0 { // it rests
		var err error
		if process, err = unix.PidfdOpen(c.PID, 0); err != nil {
			return err
		}
		defer unix.Close(process) //nolint:errcheck // only a name
	}
	type outcome struct {
		err      error
		panicked any
	}
	over := make(chan outcome, 1)
	go func() { // of its own: a thread that finds no way back ends with it
		var o outcome
		defer func() {
			o.panicked = recover()
			over <- o
		}()
		o.err = visit(process, do)
	}()
	o := <-over
	if o.panicked != nil { // it is the caller's
		panic(o.panicked)
	}
	return o.err
}

// CanVisit says whether InNetwork can be done: whether a thread of ours could come back. It is
// found out once.
func CanVisit() bool { return canVisit() }

var canVisit = sync.OnceValue(func() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(own)                            //nolint:errcheck // only read
	return unix.Setns(own, unix.CLONE_NEWNET) == nil // to where we are already
})

// visit runs do in the network namespace of a process. Where the way back fails, the
// goroutine stays locked to its thread, and must end.
func visit(process int, do func() error) (err error) {
	runtime.LockOSThread()
	stuck := false
	defer func() {
		if !stuck {
			runtime.UnlockOSThread()
		}
	}()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own) //nolint:errcheck // only read
	if err := unix.Setns(process, unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() { // also when do panics
		if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
			stuck, err = true, fmt.Errorf("go back into the own network namespace: %w", back)
		}
	}()
	return do()
}
