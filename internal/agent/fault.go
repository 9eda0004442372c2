//go:build linux

package agent

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func failed(f *wire.Fault) wire.Outcome { return wire.Outcome{Error: f} }

func fault(code, message string) *wire.Fault { return &wire.Fault{Code: code, Message: message} }

func faultBusy() *wire.Fault {
	return fault(sandbox.CodeResourceUnavailable, "too many operations at once in one sandbox")
}

// fileCodes are the error codes of file operations by error number, with a
// text where the system's own says too little.
var fileCodes = []struct {
	errno      syscall.Errno
	code, text string
}{
	{unix.ENOENT, sandbox.CodeFileNotFound, ""},
	{unix.ENOTDIR, sandbox.CodePathInvalid, "a part of the path is not a directory"},
	{unix.ELOOP, sandbox.CodeNotRegularFile, "a symbolic link is in the path"},
	{unix.EXDEV, sandbox.CodePathInvalid, "the path leaves its root"},
	{unix.EISDIR, sandbox.CodeNotRegularFile, ""},
	{unix.ENXIO, sandbox.CodeNotRegularFile, "not a regular file"},
	{unix.ENAMETOOLONG, sandbox.CodePathInvalid, ""},
	{unix.EACCES, sandbox.CodePathInvalid, ""},
	{unix.EPERM, sandbox.CodePathInvalid, ""},
	{unix.EROFS, sandbox.CodePathInvalid, wire.ReadOnly},
	{unix.EBUSY, sandbox.CodePathInvalid, ""},
	{unix.EEXIST, sandbox.CodePathInvalid, ""},
	{unix.ETXTBSY, sandbox.CodePathInvalid, ""},
	{unix.ENOSPC, sandbox.CodeTooLarge, wire.DiskFull},
	{unix.EDQUOT, sandbox.CodeTooLarge, wire.DiskFull},
	{unix.EFBIG, sandbox.CodeTooLarge, ""},
	{unix.ENOMEM, sandbox.CodeResourceUnavailable, ""},
	{unix.EMFILE, sandbox.CodeResourceUnavailable, ""},
	{unix.ENFILE, sandbox.CodeResourceUnavailable, ""},
	{unix.EAGAIN, sandbox.CodeResourceUnavailable, ""},
}

// fileFault says what went wrong with a file.
func fileFault(err error) *wire.Fault {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return fault(sandbox.CodeInternal, err.Error())
	}
	f := &wire.Fault{Code: sandbox.CodeInternal, Message: errno.Error(), Errno: int(errno)}
	for _, known := range fileCodes {
		if known.errno != errno {
			continue
		}
		f.Code = known.code
		if known.text != "" {
			f.Message = known.text
		}
	}
	return f
}

// fileFault says what went wrong with a file, also of which the sandbox's disk has none
// left: the error number is the same for blocks and inodes.
func (a *agent) fileFault(err error) *wire.Fault {
	f := fileFault(err)
	var s unix.Statfs_t
	if f.Errno == int(unix.ENOSPC) && sysStatfs(a.hello.Home, &s) == nil && s.Files > 0 && s.Ffree == 0 {
		f.Message = wire.NoInodes
	}
	return f
}

// startFault says why a process could not be started.
func startFault(program string, err error) *wire.Fault {
	var step *spawn.StepError
	if !errors.As(err, &step) {
		return &wire.Fault{Code: sandbox.CodeSetupFailed, Message: "starting " + program + ": " + err.Error()}
	}
	f := &wire.Fault{
		Code: sandbox.CodeSetupFailed, Message: "starting " + program + ": " + err.Error(),
		Step: step.Step, Errno: int(step.Errno),
	}
	switch {
	case step.Errno == unix.EAGAIN && step.Step == spawn.StepClone:
		f.Code, f.Message = sandbox.CodeResourceUnavailable, "starting "+program+": "+wire.NoProcesses
	case step.Errno == unix.EAGAIN || step.Errno == unix.ENOMEM:
		f.Code = sandbox.CodeResourceUnavailable
	case step.Step == "exec":
		f.Code, f.Message = execCode(step.Errno), program+": "+execText(step.Errno)
	}
	return f
}

func execCode(errno syscall.Errno) string {
	if errno == unix.E2BIG {
		return sandbox.CodeTooLarge
	}
	return sandbox.CodeCommandNotRunnable
}

func execText(errno syscall.Errno) string {
	switch errno {
	case unix.ENOENT:
		return "the interpreter or loader that it names does not exist"
	case unix.ENOEXEC:
		return "not a program: neither an executable of this machine nor a script with #!"
	case unix.E2BIG:
		return "the arguments and the environment are too large together"
	}
	return errno.Error()
}
