//go:build linux

package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// Owner is a user and a group.
type Owner struct{ UID, GID int }

// ErrNotMappable means that the file system cannot show its files under other
// ids (mount_setattr(2), MOUNT_ATTR_IDMAP).
var ErrNotMappable = errors.New("the file system does not support id-mapped mounts")

// IDMapped copies the mount that shows path (nothing mounted below it comes
// along) so that files of one owner on disk belong to another owner as seen
// through the copy, in both directions; files of everybody else belong to nobody.
// What is mounted below path later does not come along either, see private.
// It is for root: the copy is made by this process, to be attached by a sandbox.
// The caller closes the descriptor.
func IDMapped(path string, flags uint64, onDisk, seen Owner) (*os.File, error) {
	namespace, err := mapping(onDisk, seen)
	if err != nil {
		return nil, fmt.Errorf("make a user namespace for %s: %w", path, err)
	}
	defer namespace.Close() //nolint:errcheck // the mount has its own reference
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	tree := os.NewFile(uintptr(fd), path)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: flags | unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd()), Propagation: private,
	})
	if err != nil {
		_ = tree.Close()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			err = ErrNotMappable
		}
		return nil, &os.PathError{Op: "mount_setattr", Path: path, Err: err}
	}
	return tree, nil
}

// private cuts a copy off from what it is a copy of. Under systemd all mounts are
// shared: what the host mounts below one appears in each copy that is not cut off,
// without the copy's flags.
const private = unix.MS_PRIVATE

// Plain copies the mount that shows path, with everything mounted below it, and gives
// the copy the flags. What is mounted below it later does not come along. It is for root, as IDMapped is. The caller closes the descriptor.
func Plain(path string, flags uint64) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	tree := os.NewFile(uintptr(fd), path)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: flags, Propagation: private}); err != nil {
		_ = tree.Close()
		return nil, &os.PathError{Op: "mount_setattr", Path: path, Err: err}
	}
	return tree, nil
}

// mapping returns a user namespace that maps one owner to the other. Its only
// process waits to be killed: a namespace lives as long as a descriptor of it.
func mapping(from, to Owner) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // nothing is read
	defer w.Close() //nolint:errcheck // nothing is written
	p := spawn.New(int(r.Fd()))
	p.Positive("wait to be killed", unix.SYS_READ, int(r.Fd()), make([]byte, 1), 1)
	child, err := p.Start(spawn.Clone{Flags: unix.CLONE_NEWUSER})
	if err != nil {
		return nil, err
	}
	defer child.Abandon()
	proc := fmt.Sprintf("/proc/%d/", child.PID)
	if err := os.WriteFile(proc+"uid_map", fmt.Appendf(nil, "%d %d 1\n", from.UID, to.UID), 0); err != nil {
		return nil, err
	}
	if err := os.WriteFile(proc+"gid_map", fmt.Appendf(nil, "%d %d 1\n", from.GID, to.GID), 0); err != nil {
		return nil, err
	}
	return os.Open(proc + "ns/user")
}
