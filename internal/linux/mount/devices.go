//go:build linux

package mount

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// Device is a character device.
type Device struct {
	Name         string
	Major, Minor uint32
}

// TmpfsWithDevices makes a tmpfs, visible nowhere yet, with device files of its own in
// the directory dev, that everybody may read and write. Where a user namespace makes
// a tmpfs, the kernel takes no device file on it for one; so this is for root of the
// host, and the file system stays the host's: nobody inside can change its options.
// The mount is nosuid and nodev. The root belongs to owner. The caller closes the
// descriptor.
func TmpfsWithDevices(bytes, inodes int64, mode uint32, owner Owner, devices []Device) (*os.File, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen tmpfs: %w", err)
	}
	defer unix.Close(fs) //nolint:errcheck // the mount has its own reference
	for _, o := range [][2]string{
		{"size", strconv.FormatInt(bytes, 10)},
		{"nr_inodes", strconv.FormatInt(inodes, 10)},
		{"mode", strconv.FormatUint(uint64(mode), 8)},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("fsconfig %s=%s: %w", o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make a tmpfs: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, NoSuid|NoDev)
	if err != nil {
		return nil, fmt.Errorf("fsmount tmpfs: %w", err)
	}
	tree := os.NewFile(uintptr(fd), "tmpfs")
	if err := makeDevices(fd, owner, devices); err != nil {
		_ = tree.Close()
		return nil, err
	}
	return tree, nil
}

func makeDevices(root int, owner Owner, devices []Device) error {
	if err := unix.Mkdirat(root, "dev", 0o755); err != nil {
		return fmt.Errorf("mkdir dev: %w", err)
	}
	// Not by the options uid and gid: everybody inside can read those.
	for _, dir := range []string{".", "dev"} {
		if err := unix.Fchownat(root, dir, owner.UID, owner.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("chown %s: %w", dir, err)
		}
	}
	for _, d := range devices {
		name := "dev/" + d.Name
		if err := unix.Mknodat(root, name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.Major, d.Minor))); err != nil { //nolint:gosec // small numbers
			return fmt.Errorf("mknod %s: %w", name, err)
		}
		if err := unix.Fchmodat(root, name, 0o666, 0); err != nil { // mknod minds the umask
			return fmt.Errorf("chmod %s: %w", name, err)
		}
	}
	return nil
}

// ShowDevices shows a directory once more at target, be it over itself, read-only and
// with its device files working.
func ShowDevices(p *spawn.Program, path, target string) {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	fd := p.Result("open "+path, unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, flags)
	change := attr(ReadOnly | NoSuid | NoExec)
	copy(change[8:], attr(NoDev)[:8]) // attr_clr
	p.Call("restrict "+path, unix.SYS_MOUNT_SETATTR, fd.Ref(), "", unix.AT_EMPTY_PATH, change, attrSize)
	Tree{fd.Ref()}.Attach(p, target)
}
