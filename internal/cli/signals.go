package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long after a signal another one counts as the same:
// timeout(1) sends its signal to its child, and at once to its child's group.
const sameSignal = 100 * time.Millisecond

// notifyEnd passes on the signals that end programs. One that our parent ignores for us
// (nohup, a shell's background job) stays ignored.
func notifyEnd(ch chan<- os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
}

// cancelOnSignal ends the run at the first SIGINT, SIGTERM, SIGHUP or SIGQUIT and this
// process at the second.
func cancelOnSignal(cancel func()) (stop func()) {
	return onSignals(cancel, func() {
		os.Exit(exitCancelled) //nolint:forbidigo // the second Ctrl-C is meant
	})
}

// onSignals calls first at the first signal that ends programs, and again at each later one.
func onSignals(first, again func()) (stop func()) {
	ch := make(chan os.Signal, 2)
	notifyEnd(ch)
	done := make(chan struct{})
	go func() {
		select {
		case <-ch:
			first()
		case <-done:
			return
		}
		began := time.Now()
		for {
			select {
			case <-ch:
				if time.Since(began) > sameSignal {
					again()
				}
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(ch); close(done) }
}

// catchBrokenPipe makes a write to a closed pipe an error instead of the end
// of this process, until the returned function is called. Unlike ignoring the
// signal, catching it is not inherited by the programs we start.
func catchBrokenPipe() (release func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGPIPE)
	return func() { signal.Stop(ch) }
}
