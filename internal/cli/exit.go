package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// Exit statuses of our own. 124, 125, 126 and 137 follow timeout(1), env(1)
// and the shells.
const (
	exitTime        = 124
	exitPinfold     = 125
	exitRequirement = 126
	exitNotRunnable = 126 // of a command, as shells have it
	exitNotFound    = 127
	exitLimit       = 137
	exitCancelled   = 130
	exitBrokenPipe  = 141
	exitSignalBase  = 128
)

// signalNumbers are the signals that end a process, by number, as signal(7)
// has them for x86 and ARM.
var signalNumbers = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
	"SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
	"SIGSTKFLT": 16, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGIO": 29, "SIGPWR": 30,
	"SIGSYS": 31,
}

const firstRealTime = 34 // SIGRTMIN as the C library counts

// exitStatus is the exit status of "run" for a result.
func exitStatus(r *sandbox.Result) int {
	switch r.Status {
	case sandbox.StatusError:
		return exitPinfold
	case sandbox.StatusKilled:
		switch r.Cause.Kind {
		case sandbox.CauseWallTime, sandbox.CauseCPUTime:
			return exitTime
		case sandbox.CauseCancelled:
			return exitCancelled
		}
		return exitLimit
	}
	code, signal := r.ExitCode, r.Signal
	if r.Cause.Phase == sandbox.PhaseCompile && r.Compile != nil {
		code, signal = r.Compile.ExitCode, r.Compile.Signal
	}
	switch {
	case signal != "":
		return exitSignalBase + signalNumber(signal)
	case code != nil && *code == 0 && r.Gate != nil && r.Gate.Outcome == sandbox.GateWithhold:
		return exitPinfold // who relies on the output must not take nothing for it
	case code != nil:
		return *code & 0xff
	case r.Status == sandbox.StatusSucceeded:
		return 0
	}
	return 1
}

// signalNumber is 0 for a name that signal(7) does not have.
func signalNumber(name string) int {
	if n, ok := signalNumbers[name]; ok {
		return n
	}
	if rest, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "+"))
		if rest == "" || (err == nil && n >= 0 && n <= 30) {
			return firstRealTime + n
		}
	}
	return 0
}

// errorStatus is the exit status for an error.
func errorStatus(e *sandbox.Error) int {
	switch {
	case e.Code == sandbox.CodeRequirementUnmet, e.Code == sandbox.CodeNetworkUnsupported:
		return exitRequirement
	case e.Code == sandbox.CodeCommandNotFound:
		return exitNotFound
	case e.Code == sandbox.CodeCommandNotRunnable:
		return exitNotRunnable
	case errors.Is(e, context.Canceled):
		return exitCancelled
	}
	return exitPinfold
}
