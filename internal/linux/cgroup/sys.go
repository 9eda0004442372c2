package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openFile opens without the runtime's poller: kernfs files claim to be
// pollable, and a descriptor in the poller is non-blocking.
func openFile(path string, flags int) (int, error) {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// writeFile writes a value to a control file in one system call, as the
// kernel's parsers want it. The error names the file and the value.
func writeFile(path, value string) error {
	fd, err := openFile(path, unix.O_WRONLY)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		err = retry(func() error {
			_, err := unix.Write(fd, []byte(value))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("cannot write %q to %s: %w", value, path, cause(err))
	}
	return nil
}

// readFile reads a whole file of at most limit bytes; a longer one is an error.
func readFile(path string, limit int) ([]byte, error) {
	fd, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	for buf := make([]byte, 0, 2048); ; buf = slices.Grow(buf, len(buf)) {
		for len(buf) < cap(buf) {
			var n int
			err := retry(func() (err error) {
				n, err = unix.Read(fd, buf[len(buf):cap(buf)])
				return err
			})
			if err != nil {
				return nil, &os.PathError{Op: "read", Path: path, Err: err}
			}
			if n == 0 {
				return buf, nil
			}
			if buf = buf[:len(buf)+n]; len(buf) > limit {
				return nil, fmt.Errorf("%s is longer than %d bytes", path, limit)
			}
		}
	}
}

func mkdir(path string) error {
	err := retry(func() error { return unix.Mkdir(path, 0o755) })
	if err != nil {
		return fmt.Errorf("cannot make %s: %w", path, err)
	}
	return nil
}

// rmdir removes a group's directory. That it is gone already is no error.
func rmdir(path string) error {
	err := retry(func() error { return unix.Rmdir(path) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("cannot remove %s: %w", path, err)
}

func exists(path string) bool {
	return unix.Access(path, unix.F_OK) == nil
}

// cause strips the path that os added, because the caller names it.
func cause(err error) error {
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
