//go:build linux

package agent

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// deadly are the signals whose handler in the Go runtime would end the agent.
// SIGPIPE, SIGURG and SIGCHLD keep theirs, which do no harm. None is set to be
// ignored: that would be inherited by every program.
var deadly = []unix.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGUSR1,
	unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM, unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ,
	unix.SIGVTALRM, unix.SIGPROF, unix.SIGIO, unix.SIGPWR, unix.SIGSYS,
}

// faults are those with which the Go runtime reports its own panics. Pid 1 can
// do without the report; another process cannot be protected anyway.
var faults = []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE}

// harden makes the process hard to look into and to kill from beside it.
func harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	for _, s := range deadly {
		defaultAction(s)
	}
	if os.Getpid() == 1 {
		for _, s := range faults {
			defaultAction(s)
		}
	}
	return nil
}

// The threads that are not made by makeThreads: the runtime's monitor and its
// thread for making threads, and the one that runs makeThreads.
const otherThreads = 3

// makeThreads makes every thread that the agent may ever need. The runtime
// keeps idle threads for ever.
func makeThreads(total int) {
	if runtime.GOMAXPROCS(0) > 2 {
		runtime.GOMAXPROCS(2)
	}
	var ready, done sync.WaitGroup
	done.Add(1)
	for range total - otherThreads {
		ready.Add(1)
		go func() {
			runtime.LockOSThread()
			ready.Done()
			done.Wait()
			runtime.UnlockOSThread()
		}()
	}
	ready.Wait()
	done.Done()
}
