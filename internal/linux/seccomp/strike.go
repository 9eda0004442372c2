//go:build linux

package seccomp

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A process has a grace to die of SIGSYS before SIGKILL, and another one as long as it has
// not been given a processor to take the signal. All those of a sandbox together have the
// patience to do so: they can stop each other, and the refusals of others wait.
const (
	grace    = 20 * time.Millisecond
	patience = 2 * time.Second
)

// victim is a process to be ended, by its thread that made the request.
type victim struct {
	tid, pidfd int
	// deaf means that the process catches, blocks or ignores SIGSYS.
	deaf bool
}

// findVictim opens the process that made the request; false if it is gone or
// cannot be opened. Its number is looked up before the request is checked: if
// the caller still waits after that, its process existed all the while, and
// the descriptor means it and no successor with the same number.
func findVictim(fd uintptr, r request) (victim, bool) {
	pid, deaf, _ := processOf(r.tid)
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return victim{}, false
	}
	if !waiting(fd, r.id) {
		_ = unix.Close(pidfd)
		return victim{}, false
	}
	return victim{r.tid, pidfd, deaf}, true
}

// processOf reads from proc_pid_status(5) the process that a thread belongs
// to, whether the thread would survive SIGSYS, and whether its process has yet to take
// one. Where /proc is closed to us it supposes that the thread leads its process, and the
// worst.
func processOf(tid int) (pid int, deaf, due bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid, true, false
	}
	field := func(name string, base int) uint64 {
		_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), base, 64)
		if err != nil {
			return 0
		}
		return n
	}
	const sigsys = 1 << (unix.SIGSYS - 1)
	kept := field("SigBlk", 16) | field("SigIgn", 16) | field("SigCgt", 16)
	return int(field("Tgid", 10)), kept&sigsys != 0, field("ShdPnd", 16)&sigsys != 0
}

// strike ends the process and gives the descriptor back. Where it can it uses
// SIGSYS, as the kernel would have, so that whoever waits for the process sees
// the reason. That signal can be kept away, so SIGKILL follows. The call
// itself is denied in between: the caller looks at signals only afterwards. left is what
// there is of the patience, and what it returns is what is left of that.
func (v victim) strike(deny func(), left time.Duration) time.Duration {
	defer unix.Close(v.pidfd) //nolint:errcheck // a descriptor that was only signalled
	// Errors of the signals mean that the process is dead, which is the aim.
	if !v.deaf {
		_ = unix.PidfdSendSignal(v.pidfd, unix.SIGSYS, nil, 0)
		deny()
		left = v.wait(left)
	}
	_ = unix.PidfdSendSignal(v.pidfd, unix.SIGKILL, nil, 0)
	if v.deaf {
		deny()
	}
	return left
}

// wait returns when the process is dead, or has taken the signal and lives, or keeps it
// away, or there is no patience left, and what is left of it.
func (v victim) wait(left time.Duration) time.Duration {
	begun := time.Now()
	for !v.dies() {
		if _, deaf, due := processOf(v.tid); deaf || !due || time.Since(begun) > left {
			break
		}
	}
	return max(0, left-time.Since(begun))
}

// dies waits for the process's death, for one grace.
func (v victim) dies() bool {
	deadline := time.Now().Add(grace)
	for left := grace; left > 0; left = time.Until(deadline) {
		p := []unix.PollFd{{Fd: int32(v.pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		if n > 0 || (err != nil && err != unix.EINTR) {
			return true
		}
	}
	return false
}
