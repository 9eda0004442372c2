//go:build linux

package native

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// turn says with which processor a driver begins. Processes that run one program each,
// at the same time, must not all begin with the same one; so each takes the lowest
// free number of a few, which are names of sockets in no file system.
type turn struct {
	once   sync.Once
	number int
	socket *os.File // holds the number; nil: nothing does
}

// processors are those of the host that this process may use, and so what it makes:
// the one first that should be used first.
func (t *turn) processors() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil // such as on a host with more than the set has room for
	}
	there := make([]int, 0, set.Count())
	for n := range 64 * len(set) {
		if set.IsSet(n) {
			there = append(there, n)
		}
	}
	if len(there) < 2 {
		return there
	}
	t.once.Do(func() { t.take(len(there)) })
	begin := t.number % len(there)
	return slices.Concat(there[begin:], there[:begin])
}

// take takes a number below n. When all are taken, or none can be, any will do.
func (t *turn) take(n int) {
	t.number = unix.Getpid() % n
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	for number := range n {
		if unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@pinfold-turn-%d", number)}) == nil {
			t.number, t.socket = number, os.NewFile(uintptr(fd), "turn") //nolint:gosec // a descriptor
			return
		}
	}
	_ = unix.Close(fd)
}

// close gives the number back.
func (t *turn) close() {
	if t.socket != nil {
		_ = t.socket.Close()
	}
}
