//go:build linux

package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// counter counts the files of a directory that a hostile program is changing meanwhile. It
// follows no link and leaves the directory on no path.
type counter struct {
	left          int64 // inodes that are still counted
	bytes, inodes int64
	linked        map[uint64]bool // inodes with several names
}

// maxDepth is how deep directories are counted. A program that goes deeper counts as one
// that has made too many inodes: each level would cost the host a descriptor.
const maxDepth = 256

func (c *counter) count(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	c.below(fd, 0)
}

// below counts what is in an open directory, and closes it.
func (c *counter) below(fd, depth int) {
	defer unix.Close(fd) //nolint:errcheck // only read
	if depth == maxDepth {
		c.inodes, c.left = c.inodes+c.left, 0
		return
	}
	b := make([]byte, 8<<10)
	for c.left > 0 {
		n, err := unix.ReadDirent(fd, b)
		if n <= 0 || err != nil {
			return
		}
		_, _, names := unix.ParseDirent(b[:n], -1, nil)
		for _, name := range names {
			c.one(fd, name, depth)
		}
	}
}

// one counts an entry and what is below it.
func (c *counter) one(dir int, name string, depth int) {
	var st unix.Stat_t
	if c.left <= 0 || unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if c.linked[st.Ino] {
			return
		}
		c.linked[st.Ino] = true
	}
	c.left--
	c.inodes++
	c.bytes += st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		c.below(fd, depth+1)
	case errors.Is(err, unix.EACCES): // its own user has closed it to us, who are the same
		c.inodes, c.left = c.inodes+c.left, 0
	}
}

// removeTree removes a directory and all that is in it, however deep it goes, with two
// descriptors: what lies deeper is moved up first. Nobody must be changing it.
func removeTree(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	for serial := 0; ; {
		names, err := list(fd)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		for _, name := range names {
			if err := removeOne(fd, name, &serial); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return unix.Rmdir(dir)
}

// removeOne removes an entry of the top directory, and moves what is in it there.
func removeOne(top int, name string, serial *int) error {
	err := unix.Unlinkat(top, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if err := unix.Fchmodat(top, name, 0o700, 0); err != nil {
		return err
	}
	fd, err := unix.Openat(top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	for {
		names, err := list(fd)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
		}
		for _, inner := range names {
			err := unix.Unlinkat(fd, inner, 0)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
				err = moveUp(fd, inner, top, serial)
			}
			if err != nil {
				return err
			}
		}
	}
}

// moveUp moves a directory to the top, under a name that is free there.
func moveUp(from int, name string, top int, serial *int) error {
	_ = unix.Fchmodat(from, name, 0o700, 0) // its own user must be able to move it
	for {
		*serial++
		err := unix.Renameat2(from, name, top, fmt.Sprintf(".removed-%d", *serial), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// list names some of what is in a directory.
func list(fd int) ([]string, error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, err
	}
	b := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, b)
		if err != nil || n <= 0 {
			return nil, err
		}
		if _, _, names := unix.ParseDirent(b[:n], -1, nil); len(names) > 0 {
			return names, nil
		}
	}
}
