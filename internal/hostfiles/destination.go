package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"pinfold/sandbox"
)

// Destination is where a file goes that a person named. A link leads on, and what is no
// regular file (a device, a pipe) is written through and never replaced, as cp does it.
type Destination struct {
	Path    string      // of the regular file that is there, or will be
	Mode    fs.FileMode // permissions of the one that is there, which it keeps; 0 when there is none
	Special *os.File    // what is no regular file, open for writing; nil otherwise
}

// OpenDestination looks at what is there. It never waits for the reader of a pipe. The caller
// closes Special.
func OpenDestination(name string) (Destination, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(name); err == nil {
			return Destination{}, PathError(sandbox.CodeSpecInvalid, name, "is a link that leads to nothing")
		}
		return Destination{Path: name}, nil
	case err != nil:
		return Destination{}, OpenError(name, err)
	case info.IsDir():
		return Destination{}, PathError(sandbox.CodeSpecInvalid, name, "is a directory")
	case info.Mode().IsRegular():
		if path, err := filepath.EvalSymlinks(name); err == nil { // it fails for a file of /proc/self/fd that was removed
			return Destination{Path: path, Mode: info.Mode().Perm()}, nil
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return Destination{}, PathError(sandbox.CodeSpecInvalid, name, "is a pipe that nobody reads, or a device that is not there")
	}
	if err != nil {
		return Destination{}, OpenError(name, err)
	}
	return Destination{Special: f}, nil
}
