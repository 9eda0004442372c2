package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

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
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return buf.Bytes(), nil
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
