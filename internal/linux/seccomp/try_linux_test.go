package seccomp

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// try makes each attempt and prints "ATTEMPT = what came back". An attempt is
// the name of a special one, or NAME[:ARG…] for a system call.
func try(list []string) {
	runtime.LockOSThread()
	special := map[string]func() string{
		"mode":      seccompMode,
		"int80":     int80,
		"x32":       func() string { return call(x32Bit+unix.SYS_GETPID, nil) },
		"minus-one": func() string { return call(0xffffffff, nil) },
		"threads":   threads,
		"tiocsti":   func() string { return typeInto(unix.TIOCSTI) },
		"tiocsti64": func() string { return typeInto(0x1_0000_0000 | unix.TIOCSTI) },
		"ring":      ring,
		"blocked":   blockedReboot,
		"thread":    rebootFromThread,
		"hammer":    hammer,
	}
	m, err := machineFor("")
	if err != nil {
		panic(err)
	}
	numbers := m.numbers()
	for _, attempt := range list {
		name, rest, _ := strings.Cut(attempt, ":")
		if f := special[name]; f != nil {
			fmt.Printf("%s = %s\n", attempt, f())
			continue
		}
		nr, ok := numbers[name]
		if !ok {
			panic("no call named " + name)
		}
		fmt.Printf("%s = %s\n", attempt, call(uintptr(nr), arguments(rest)))
	}
}

func arguments(s string) []uintptr {
	var out []uintptr
	for f := range strings.SplitSeq(s, ":") {
		if f == "" {
			continue
		}
		v, err := strconv.ParseUint(f, 0, 64)
		if err != nil {
			panic(err)
		}
		out = append(out, uintptr(v))
	}
	return out
}

// call makes a system call. A clone returns twice; the child ends at once.
func call(nr uintptr, args []uintptr) string {
	a := [6]uintptr{}
	copy(a[:], args)
	r, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if nr == unix.SYS_CLONE && e == 0 {
		if r == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		unix.Wait4(int(r), nil, unix.WALL, nil)
	}
	if e != 0 {
		return unix.ErrnoName(e)
	}
	return "ok"
}

// seccompMode is the kernel's own word on whether a filter is on.
func seccompMode() string {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(status), "\nSeccomp:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// threads makes more of them than the runtime has.
func threads() string {
	done := make(chan int)
	for range 20 {
		go func() {
			runtime.LockOSThread() // not unlocked: the thread ends with it
			done <- unix.Gettid()
		}()
	}
	seen := map[int]bool{}
	for range 20 {
		seen[<-done] = true
	}
	return fmt.Sprint(len(seen) > 1)
}

// typeInto opens a terminal of its own and types a byte into its input.
func typeInto(request uintptr) string {
	if _, err := unix.Setsid(); err != nil && err != unix.EPERM {
		return err.Error()
	}
	ptmx, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(ptmx)
	if err := unix.IoctlSetPointerInt(ptmx, unix.TIOCSPTLCK, 0); err != nil {
		return err.Error()
	}
	n, err := unix.IoctlGetInt(ptmx, unix.TIOCGPTN)
	if err != nil {
		return err.Error()
	}
	tty, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR, 0) // becomes ours by O_NOCTTY not being set
	if err != nil {
		return err.Error()
	}
	defer unix.Close(tty)
	result := pushByte(tty, request)
	queued, err := unix.IoctlGetInt(tty, unix.TIOCINQ)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, queued %v", result, queued > 0)
}

// blockedReboot makes a killed call with SIGSYS out of reach, so that only
// SIGKILL can end it. The arguments are nonsense in case the filter is absent.
func blockedReboot() string {
	set := unix.Sigset_t{}
	for i := range set.Val {
		set.Val[i] = ^set.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err.Error()
	}
	first := call(unix.SYS_REBOOT, nil)
	for range 3000 { // far beyond the grace; each is an answer, not a spin
		call(unix.SYS_GETPPID, nil)
		unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
	}
	return "survived after " + first
}

// rebootFromThread makes a killed call in a thread that does not lead.
func rebootFromThread() string {
	answer := make(chan string)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			answer <- "ran on the first thread"
		}
		answer <- call(unix.SYS_REBOOT, nil)
	}()
	a := <-answer
	unix.Nanosleep(&unix.Timespec{Sec: 3}, nil)
	return "survived after " + a
}

// hammer makes a refused call many times.
func hammer() string {
	for range 1400 {
		if e := call(unix.SYS_UNSHARE, []uintptr{0}); e != "EPERM" {
			return e
		}
	}
	return "EPERM"
}
