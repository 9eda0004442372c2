//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
)

// Clone says what kind of process Start makes.
type Clone struct {
	Flags  uint64 // CLONE_NEW… flags
	Cgroup int    // descriptor of a cgroup v2 directory to start in, 0 for none
	Below  *Below // nil: below the caller's own namespaces

	// Mounts is the descriptor of a mount namespace, of which the child gets a
	// copy in place of the caller's; 0 for the caller's. It takes root.
	Mounts int

	// Dir is the descriptor of a directory in which a process below another begins, in
	// its own mount namespace; 0: where the caller is.
	Dir int

	// CopyLow is for a caller that may have thousands of descriptors open. The
	// child begins with the caller's own table and then copies it no further
	// than to the highest descriptor that it keeps, where otherwise the kernel
	// copies all of it, to close most again. Start takes a moment longer: it
	// waits until the child has done so.
	CopyLow bool
}

// StepClone is the step that makes the process; where it fails there was none.
const StepClone = "clone"

// StepError is a step that failed. The process has ended and been waited for.
type StepError struct {
	Step  string // "mount proc"
	Errno syscall.Errno
}

func (e *StepError) Error() string { return e.Step + ": " + e.Errno.Error() }

// Unwrap returns the error number, so that errors.Is(err, syscall.ENOENT) works.
func (e *StepError) Unwrap() error { return e.Errno }

// ErrKilled means that something killed the process before its exec.
var ErrKilled = errors.New("killed before its exec")

// Child is a process made by Start. After WaitExec has returned nil the caller
// calls Wait (or waits with wait4 or waitid) and then Release. Kill may be called
// at any time, from any goroutine.
type Child struct {
	PID   int
	Pidfd int // close-on-exec; Release closes it; -1 while it rests

	mu       sync.Mutex
	released bool
	waits    bool          // Wait was called
	ending   bool          // it is to rest no more
	reaped   bool          // by Wait: PID may be another's
	polled   *os.File      // Pidfd, once Wait has given it to the runtime's poller
	resting  chan struct{} // closed by Wake; nil unless it rests

	program *Program
	outcome *outcome
	status  *os.File // read end of the status pipe; ends at the exec or the death
}

// Start makes a process that walks the program, and returns at once. WaitExec
// must be called on the child. The program must end in an exec; it may be started
// only once and not changed afterwards.
func (p *Program) Start(c Clone) (*Child, error) {
	status, held, err := statusPipe()
	if err != nil {
		return nil, fmt.Errorf("status pipe: %w", err)
	}
	defer unix.Close(held) //nolint:errcheck // a pipe's end
	out := new(outcome)
	first := withRoom(usualSteps + len(p.steps))
	if c.twice() {
		first.append(c.enter(out))
	}
	first.append(p.closeOthers(held, c.CopyLow))
	first.resetSignals()
	first.append(p)
	first.keep = append(first.keep, out)
	p.steps, p.names, p.keep = first.steps, first.names, first.keep

	var pid, pidfd int
	if c.twice() {
		pid, pidfd, err = p.startTwice(c, out)
	} else {
		pid, pidfd, err = clone(c, p.steps, out)
	}
	var step *StepError
	if errors.As(err, &step) {
		status.Close() //nolint:errcheck,gosec // nothing was written
		return nil, step
	}
	if err != nil {
		status.Close() //nolint:errcheck,gosec // nothing was written
		return nil, &StepError{Step: StepClone, Errno: errnoOf(err)}
	}
	child := &Child{PID: pid, Pidfd: pidfd, program: p, outcome: out, status: status}
	if c.CopyLow {
		if err := awaitCopy(status, pidfd); err != nil {
			_ = child.Kill()
			child.reap()
			_ = status.Close()
			return nil, fmt.Errorf("wait for the child's descriptors: %w", err)
		}
		child.Pidfd = highfd.Move(pidfd)
	}
	return child, nil
}

// awaitCopy returns when the child has descriptors of its own, or has died. Until
// then closing one of ours would close the child's.
func awaitCopy(status *os.File, pidfd int) error {
	raw, err := status.SyscallConn()
	if err != nil {
		return err
	}
	var pollErr error
	err = raw.Control(func(fd uintptr) {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // descriptors
		for {
			if _, pollErr = unix.Poll(ready, -1); !errors.Is(pollErr, unix.EINTR) {
				break
			}
		}
		if pollErr == nil && ready[0].Revents&unix.POLLIN != 0 {
			_, pollErr = unix.Read(int(fd), make([]byte, 1))
		}
	})
	return errors.Join(err, pollErr)
}

// append adds the steps of another program.
func (p *Program) append(q *Program) {
	p.steps = append(p.steps, q.steps...)
	p.names = append(p.names, q.names...)
	p.keep = append(p.keep, q.keep...)
}

// statusPipe returns a pipe whose write end only the child will hold. The
// read end goes through the runtime's poller.
func statusPipe() (read *os.File, write int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, -1, err
	}
	return os.NewFile(uintptr(fds[0]), "spawn-status"), fds[1], nil
}

// closeOthers returns the steps that close every descriptor the child has no
// use for. They come first, so that a copy of another sandbox's descriptor
// lives for microseconds only.
func (p *Program) closeOthers(status int, shared bool) *Program {
	keep := append(slices.Clone(p.fds), 0, 1, 2, status)
	slices.Sort(keep)
	q := &Program{}
	low := 0
	if shared {
		q.Call("copy descriptors", unix.SYS_CLOSE_RANGE, keep[len(keep)-1]+1, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE)
		q.Call("report the copy", unix.SYS_WRITE, status, []byte{1}, 1)
	}
	for _, fd := range slices.Compact(keep) {
		if fd > low {
			q.Call("close descriptors", unix.SYS_CLOSE_RANGE, low, fd-1, 0)
		}
		low = fd + 1
	}
	return q.Call("close descriptors", unix.SYS_CLOSE_RANGE, low, math.MaxUint32, 0)
}

// WaitExec waits until the process has become another program (nil), or has
// failed on the way there (*StepError or ErrKilled; then it has been waited
// for and Pidfd is closed). It must be called once. The program is let go: a child
// that lives for days must not hold its sixty kilobytes.
func (c *Child) WaitExec() error {
	program, outcome := c.program, c.outcome
	defer runtime.KeepAlive(program)
	var b [1]byte
	_, _ = c.status.Read(b[:]) // never data: returns at the end of file
	_ = c.status.Close()
	c.program, c.outcome, c.status = nil, nil, nil
	last := len(program.names) - 1
	reached := int(outcome.reached)
	if reached >= last && outcome.errno == 0 {
		return nil
	}
	c.reap()
	if outcome.errno != 0 {
		return &StepError{Step: program.names[min(reached, last)], Errno: syscall.Errno(outcome.errno)}
	}
	return fmt.Errorf("%s: %w", program.names[min(reached, last)], ErrKilled)
}

// Abandon ends a process that was made for its namespaces alone and that never
// comes to an exec, and waits for it. It takes the place of WaitExec.
func (c *Child) Abandon() {
	defer runtime.KeepAlive(c.program)
	_ = c.Kill()
	_ = c.status.Close()
	c.reap()
}

// Kill sends SIGKILL, and has Wait notice the end, however late that comes. Killing a
// dead process is not an error.
func (c *Child) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.stayAwake()
	if c.released || c.reaped {
		return nil
	}
	var err error
	if c.Pidfd < 0 {
		err = unix.Kill(c.PID, unix.SIGKILL) // it is not reaped, so the number is its own
	} else {
		err = unix.PidfdSendSignal(c.Pidfd, unix.SIGKILL, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Wait waits for the end of the process and collects its exit status. Until then
// the process's number is not given to another one. It waits through the runtime's
// poller, on the one pidfd, so that a thousand children cost neither a thousand
// threads nor a thousand descriptors more. It must be called once, before Release.
func (c *Child) Wait() (status syscall.WaitStatus) {
	c.mu.Lock()
	c.waits = true
	c.mu.Unlock()
	collect := func(uintptr) bool { return c.collect(&status) }
	for !c.ended() {
		raw, resting := c.poll()
		switch {
		case resting != nil:
			<-resting
		case raw == nil || raw.Read(collect) != nil && !c.rests():
			// The poller does not take it, or there was no descriptor to wake up with.
			if !collect(0) {
				time.Sleep(pollPause)
			}
		}
	}
	return status
}

// pollPause is between two looks at a child that the poller does not take.
const pollPause = 10 * time.Millisecond

// collect takes the exit status, if there is one. It says whether that, or waiting
// here, is over.
func (c *Child) collect(status *syscall.WaitStatus) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped || c.resting != nil {
		return true
	}
	got, err := syscall.Wait4(c.PID, status, unix.WNOHANG|unix.WALL, nil)
	c.reaped = got == c.PID || err != nil && !errors.Is(err, unix.EINTR)
	return c.reaped
}

func (c *Child) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reaped
}

func (c *Child) rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resting != nil
}

// poll gives the pidfd to the runtime's poller; nil where it does not take it. Of
// a child that rests it returns what is closed when it does no longer.
func (c *Child) poll() (raw syscall.RawConn, resting chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting != nil {
		return nil, c.resting
	}
	if c.polled == nil {
		if c.released || c.Pidfd < 0 || unix.SetNonblock(c.Pidfd, true) != nil {
			return nil, nil
		}
		c.polled = os.NewFile(uintptr(c.Pidfd), "pidfd") //nolint:gosec // a descriptor
	}
	raw, err := c.polled.SyscallConn()
	if err != nil {
		return nil, nil
	}
	return raw, nil
}

// Rest closes Pidfd of a child that Wait waits for, to save the descriptor. Until
// Wake, Wait does not notice its end: it is for who learns of that in another way, and
// then calls StayAwake. Nobody else can get its number meanwhile, since nobody has waited
// for it.
func (c *Child) Rest() {
	c.mu.Lock()
	if c.released || c.reaped || c.ending || !c.waits || c.Pidfd < 0 || c.resting != nil {
		c.mu.Unlock()
		return
	}
	polled := c.polled
	if polled == nil { // Wait has not come to it yet
		_ = unix.Close(c.Pidfd)
	}
	c.polled, c.Pidfd, c.resting = nil, -1, make(chan struct{})
	c.mu.Unlock()
	if polled != nil {
		_ = polled.Close() // waits for Wait's look at it, which needs the lock
	}
}

// Wake ends the rest. Where there is no descriptor to be had, Wait looks at the child
// from time to time.
func (c *Child) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake()
}

// StayAwake ends the rest for good: the child is about to end, which may take it a
// while, and nobody will say so again.
func (c *Child) StayAwake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stayAwake()
}

func (c *Child) stayAwake() {
	c.ending = true
	c.wake()
}

func (c *Child) wake() {
	if c.resting == nil {
		return
	}
	if fd, err := unix.PidfdOpen(c.PID, 0); err == nil {
		c.Pidfd = highfd.Move(fd)
	}
	close(c.resting)
	c.resting = nil
}

// Release closes Pidfd. It may be called again.
func (c *Child) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	switch {
	case c.polled != nil:
		_ = c.polled.Close()
	case c.Pidfd >= 0:
		_ = unix.Close(c.Pidfd)
	}
}

// reap waits for the end of a process that did not reach its exec.
func (c *Child) reap() {
	for {
		err := unix.Waitid(unix.P_PIDFD, c.Pidfd, nil, unix.WEXITED|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.Release()
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EINVAL
}
