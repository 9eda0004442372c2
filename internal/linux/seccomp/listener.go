//go:build linux

package seccomp

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold/sandbox"
)

const (
	// maxNames bounds what a Listener remembers: each name costs memory here.
	maxNames = 64

	// After freeRefusals quick answers every further thousand adds a
	// millisecond to each answer, so that hammering costs the one who hammers.
	freeRefusals = 1000
	maxDelay     = 50 * time.Millisecond
)

// Listener answers the calls that a filter sends up: refused ones with EPERM,
// killed ones by ending the process. Serve is called once; the other methods
// may be called at any time from any goroutine.
type Listener struct {
	machine machine
	kills   map[string]bool
	sizes   messageSizes
	file    *os.File
	conn    syscall.RawConn
	closed  chan struct{}
	once    sync.Once

	patience time.Duration // that is left; Serve's alone

	mu     sync.Mutex
	counts map[string]int64
	total  int64
	killed string
}

// NewListener takes over the descriptor that seccomp(2) returned, and closes
// it if it fails.
func NewListener(fd int) (*Listener, error) {
	l, err := newListener(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("seccomp: listener: %w", err)
	}
	return l, nil
}

func newListener(fd int) (*Listener, error) {
	m, err := machineFor("")
	if err != nil {
		return nil, err
	}
	l := &Listener{machine: m, patience: patience, closed: make(chan struct{}), counts: map[string]int64{}}
	if l.kills, err = killedNames(); err != nil {
		return nil, err
	}
	if l.sizes, err = kernelSizes(); err != nil {
		return nil, err
	}
	// Non-blocking is what makes os.NewFile hand the descriptor to the poller:
	// a waiting Serve costs a goroutine and no thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "seccomp listener")
	if l.conn, err = file.SyscallConn(); err != nil {
		return nil, err
	}
	l.file = file
	return l, nil
}

// killedNames returns the calls that end the process. All listeners share it.
var killedNames = sync.OnceValues(func() (map[string]bool, error) {
	all, err := rules(false, nil)
	kills := map[string]bool{}
	for name, r := range all {
		if r.verdict == kill {
			kills[name] = true
		}
	}
	return kills, err
})

// kernelSizes returns how long messages to and from the kernel are.
var kernelSizes = sync.OnceValues(func() (messageSizes, error) {
	s, err := notifySizes()
	return messageSizes{max(s.request, requestSize), max(s.response, responseSize)}, err
})

// Serve answers until the last process with the filter is gone (Linux 5.8 and
// later tell) or Close is called; both return nil. After any other end calls
// of the sandbox would wait for ever, so Serve closes the listener: the kernel
// then answers ENOSYS.
func (l *Listener) Serve() error {
	defer l.Close() //nolint:errcheck // Serve says more
	for {
		r, s, err := l.next()
		if err == nil && s == arrived {
			err = l.answer(r)
		}
		switch {
		case s == ended || l.isClosed():
			return nil
		case err != nil:
			return fmt.Errorf("seccomp: listener: %w", err)
		}
	}
}

// Close ends Serve at once. Callers that still wait get ENOSYS.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		err = l.file.Close()
	})
	return err
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Denied counts the calls that were refused or killed, the most frequent
// first. Counts may be too high where the kernel has no Support.WaitKillable.
// At most 64 names are remembered.
func (l *Listener) Denied() []sandbox.DeniedSyscall {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]sandbox.DeniedSyscall, 0, len(l.counts))
	for name, n := range l.counts {
		out = append(out, sandbox.DeniedSyscall{Name: name, Count: n})
	}
	slices.SortFunc(out, func(a, b sandbox.DeniedSyscall) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Killed names the first call that ended a process, or is empty.
func (l *Listener) Killed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

// state is what next found.
type state int

const (
	nothing state = iota // the caller was gone before we looked
	arrived
	ended
)

// next waits for a request. The kernel's receive blocks even on a non-blocking
// descriptor, so it is called only after poll has said that there is one; we
// are the only reader.
func (l *Listener) next() (r request, s state, err error) {
	pollErr := l.conn.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err = unix.Poll(p, 0); err != nil {
			if errors.Is(err, unix.EINTR) {
				s, err = nothing, nil
			}
			return true
		}
		switch {
		case p[0].Revents&unix.POLLIN != 0:
			var ok bool
			if r, ok, err = receive(fd, l.sizes.request); ok {
				s = arrived
			}
			return true
		case p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0:
			s = ended
			return true
		}
		return false
	})
	return r, s, errors.Join(pollErr, err)
}

func (l *Listener) answer(r request) error {
	name := l.machine.callName(r.nr)
	l.wait(l.count(name))
	var failed error
	err := l.conn.Control(func(fd uintptr) {
		send := func() { failed = deny(fd, r.id, l.sizes.response) }
		if r.arch == l.machine.audit && l.kills[name] {
			if v, ok := findVictim(fd, r); ok {
				l.strikes(name)
				l.patience = v.strike(send, l.patience)
				return
			}
		}
		send()
	})
	return errors.Join(err, failed)
}

// count returns how long the answer has to wait.
func (l *Listener) count(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.counts[name]; known || len(l.counts) < maxNames {
		l.counts[name]++
	}
	l.total++
	return min(time.Duration(l.total/freeRefusals)*time.Millisecond, maxDelay)
}

func (l *Listener) strikes(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = cmp.Or(l.killed, name)
}

func (l *Listener) wait(d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-l.closed:
	}
}
