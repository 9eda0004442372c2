//go:build linux

package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Below puts a new process's namespaces below somebody else's, so that others
// can join it there: its pid namespace below that of another process, whose
// children can then be moved into it, and its user namespace into the possession of
// a user, whose processes may enter it without any privilege. Making such a
// process takes root.
type Below struct {
	Process int // pidfd of a process in the pid namespace
	Owner   int // user id
}

// secbitNoSetuidFixup keeps the capabilities through a change of user; a new
// user namespace begins without it (SECBIT_NO_SETUID_FIXUP).
const secbitNoSetuidFixup = 1 << 2

// twice says whether the process is made by another one, which then ends.
func (c Clone) twice() bool { return c.Below != nil || c.Mounts > 0 }

// enter returns the steps of a process that is in the pid namespace, shares our
// descriptors, and is replaced by one in namespaces of its own. Only so can it
// be done: a process cannot change its own pid namespace, and a user namespace
// belongs to whoever made it, and has no power over the mount namespace that is
// copied.
func (c Clone) enter(out *outcome) *Program {
	p := &Program{}
	if c.Mounts > 0 {
		p.Call("enter mount namespace", unix.SYS_SETNS, c.Mounts, unix.CLONE_NEWNS)
	}
	if c.Dir > 0 { // the kernel takes it along into the copy of the mount namespace
		p.Call("change directory", unix.SYS_FCHDIR, c.Dir)
	}
	if b := c.Below; b != nil {
		p.Call("keep capabilities", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secbitNoSetuidFixup, 0, 0, 0)
		p.Call("become the owner", unix.SYS_SETRESUID, -1, b.Owner, -1)
		p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	p.double(c, out)
	return p
}

// startTwice makes the process and returns when it exists.
func (p *Program) startTwice(c Clone, out *outcome) (pid, pidfd int, err error) {
	first, err := p.startFirst(c, out)
	if err != nil {
		return 0, -1, err
	}
	var status unix.WaitStatus
	for {
		_, err = unix.Wait4(first, &status, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case out.pidfd > 0:
		pid, err = pidOf(int(out.pidfd))
		return pid, int(out.pidfd), err
	case out.errno != 0:
		return 0, -1, &StepError{Step: p.names[min(int(out.reached), len(p.names)-1)], Errno: syscall.Errno(out.errno)} //nolint:gosec // an index, a number
	}
	return 0, -1, fmt.Errorf("clone: %w", ErrKilled)
}

// startFirst makes the process that makes the process. Below another one it uses
// a thread of its own for a moment: what a thread's children belong to can be
// changed for each thread, and the runtime starts no other thread from a locked
// one.
func (p *Program) startFirst(c Clone, out *outcome) (first int, err error) {
	if c.Below == nil {
		first, _, err = clone(c, p.steps, out)
		return first, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(own) //nolint:errcheck // only read
	if err := unix.Setns(c.Below.Process, unix.CLONE_NEWPID); err != nil {
		return 0, &StepError{Step: "enter pid namespace", Errno: errnoOf(err)}
	}
	first, _, err = clone(c, p.steps, out)
	if err := unix.Setns(own, unix.CLONE_NEWPID); err != nil {
		panic("spawn: cannot go back to the own pid namespace: " + err.Error())
	}
	return first, err
}

// pidOf returns the number of a process in our own pid namespace.
func pidOf(pidfd int) (int, error) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	if unix.IoctlPidfdInfo(pidfd, &info) == nil && info.Pid > 0 {
		return int(info.Pid), nil
	}
	return listedPID(pidfd)
}

// listedPID is pidOf for kernels before Linux 6.13.
func listedPID(pidfd int) (int, error) {
	f, err := os.Open("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, errors.New("the kernel does not say which process a pidfd is for")
}
