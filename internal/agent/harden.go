//go:build linux

package agent

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest signal number of Linux.
const lastSignal = 64

// kept says which signals the Go runtime must go on handling: that a child has
// ended, its own preemption, and, except in pid 1, the report of a panic (in
// another process nothing protects us anyway).
func kept(sig unix.Signal) bool {
	switch sig {
	case unix.SIGCHLD, unix.SIGURG:
		return true
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE:
		return os.Getpid() != 1
	}
	return false
}

// harden makes the process hard to look into and to kill from beside it.
//
// Signals are ignored one by one, although pid 1 is said to be safe from those
// with the default action: one that arrives while the first thread has it
// blocked (because it is in a handler) ends the process all the same.
func harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	for s := unix.Signal(1); s <= lastSignal; s++ {
		if !kept(s) {
			ignore(s)
		}
	}
	return allDescriptors()
}

// allDescriptors raises the limit on open descriptors as far as it may be: a
// driver may have made it small to speed up the start.
func allDescriptors() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// otherThreads are those that makeThreads does not count: the runtime's
// monitor, its thread for making threads, the one that runs the rest meanwhile,
// and one that a busy machine brings about.
const otherThreads = 4

// makeThreads makes every thread that the agent may ever need. The runtime
// keeps idle threads for ever.
func makeThreads(total int) {
	if runtime.GOMAXPROCS(0) > 1 {
		runtime.GOMAXPROCS(1)
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
