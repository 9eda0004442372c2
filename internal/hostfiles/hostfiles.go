// Package hostfiles takes files of the caller's machine into sandboxes and out of
// them: what is copied in with a run, directories as archives in both directions, and
// what comes out, stored below a directory that nothing escapes from. Everything that
// comes from a sandbox is hostile, its names and the archive around them included.
//
// It knows no flags and no server: errors name the file, and package cli names the
// flag and talks to the server.
package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"pinfold/sandbox"
)

// Open opens a file that a person named for reading. It never
// waits for a writer of a pipe and refuses directories.
func Open(name string) (*os.File, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return nil, PathError(sandbox.CodePathInvalid, name, "contains a NUL byte")
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, OpenError(name, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = PathError(sandbox.CodeNotRegularFile, name, "is a directory")
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// OpenError says why a file of the host could not be opened.
func OpenError(name string, err error) *sandbox.Error {
	if errors.Is(err, fs.ErrNotExist) {
		return PathError(sandbox.CodeFileNotFound, name, "does not exist")
	}
	e := PathError(sandbox.CodeSpecInvalid, name, "cannot be opened: "+Reason(err))
	e.Err = err
	return e
}

// PathError is an error about a file of the host.
func PathError(code, name, why string) *sandbox.Error {
	return &sandbox.Error{Code: code, Message: sandbox.SafeText(name, 200) + " " + why}
}

// Reason is the system's words of an error without the path, for where that is said
// already.
func Reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err.Error()
	}
	return err.Error()
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
