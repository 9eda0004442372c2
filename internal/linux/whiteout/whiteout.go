//go:build linux

// Package whiteout makes and reads the marks with which a layer of an overlay hides
// what lies below it: a whiteout in the place of one name, and a directory that is
// opaque, whose lower ones are not looked into. Both are as an overlay mounted in a
// user namespace reads them (option userxattr), and an ordinary user can make them.
package whiteout

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// opaque is the attribute of an opaque directory, see Documentation/filesystems/overlayfs.rst.
const opaque = "user.overlay.opaque"

// Make makes a whiteout of a name in the open directory dir. Where something has
// the name, the error is fs.ErrExist.
func Make(dir int, name string) error {
	return unix.Mknodat(dir, name, unix.S_IFCHR, 0)
}

// Is says whether a directory's entry, as lstat(2) describes it, is a whiteout.
func Is(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// SetOpaque makes the open directory opaque.
func SetOpaque(dir int) error { return unix.Fsetxattr(dir, opaque, []byte("y"), 0) }

// IsOpaque says whether the open directory is opaque.
func IsOpaque(dir int) (bool, error) {
	value := make([]byte, 1)
	n, err := unix.Fgetxattr(dir, opaque, value)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.ERANGE):
		return false, nil
	case err != nil:
		return false, err
	}
	return bytes.Equal(value[:n], []byte("y")), nil
}
