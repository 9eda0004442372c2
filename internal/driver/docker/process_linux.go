package docker

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is one of the host's. Another one may get its number, but has not begun at the
// same tick of the kernel's clock.
type process struct {
	PID   int
	Begun int64
}

// named is a process by its number.
func named(pid int) process { return process{pid, begun(pid)} }

// String is part of a file's name.
func (p process) String() string { return fmt.Sprintf("%d-%d", p.PID, p.Begun) }

// lives says whether it is still there.
func (p process) lives() bool { return p.PID != 0 && p.Begun != 0 && p.Begun == begun(p.PID) }

// begun is when a process started; 0: there is none, or it is dead.
func begun(pid int) int64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || string(fields[0]) == "Z" || string(fields[0]) == "X" {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[19]), 10, 64)
	return n
}

// await returns a channel that is closed when the process has ended. It waits in the
// runtime's poller, and takes no thread.
func (p process) await() (<-chan struct{}, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "process") //nolint:gosec // a descriptor
	raw, err := f.SyscallConn()
	if err == nil && !p.lives() { // the descriptor may be of another one
		err = unix.ESRCH
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer f.Close() //nolint:errcheck // only waited for
		_ = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor
			return n > 0 || err != nil && err != unix.EINTR
		})
	}()
	return ended, nil
}
