//go:build linux

// Package mount adds the steps of building a file tree to a spawn.Program: the
// new mount namespace's root, read-only views of host directories, and the
// change of root. It uses the mount API of Linux 5.12 (open_tree,
// mount_setattr, move_mount), so that a tree gets its flags as a whole before
// anybody can see it.
//
// It decides nothing: what is mounted where is the caller's business.
package mount

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// Flags of a mount, as in mount_attr(2).
const (
	ReadOnly = unix.MOUNT_ATTR_RDONLY
	NoSuid   = unix.MOUNT_ATTR_NOSUID
	NoDev    = unix.MOUNT_ATTR_NODEV
	NoExec   = unix.MOUNT_ATTR_NOEXEC
)

// Tree is a copy of a mount, not yet visible anywhere.
type Tree struct{ fd any } // an argument of a step: a number or a spawn.Ref

// Opened is a tree that this process has made already, see IDMapped. The
// descriptor must be among those that the program keeps.
func Opened(fd int) Tree { return Tree{fd} }

// Private cuts the namespace off from every other: no mount made here is seen
// elsewhere, and none made elsewhere is seen here.
func Private(p *spawn.Program) {
	p.Call("make mounts private", unix.SYS_MOUNT, nil, "/", nil, unix.MS_REC|unix.MS_PRIVATE, nil)
}

// Clone copies the mount that shows path, with everything mounted below it when
// recursive, and gives the copy the flags. Flags are only ever added: a kernel that
// locked a flag in an outer namespace keeps it.
func Clone(p *spawn.Program, path string, recursive bool, flags uint64) Tree {
	open := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	at := unix.AT_EMPTY_PATH
	if recursive {
		open |= unix.AT_RECURSIVE
		at |= unix.AT_RECURSIVE
	}
	fd := p.Result("open "+path, unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, open)
	if flags != 0 {
		p.Call("restrict "+path, unix.SYS_MOUNT_SETATTR, fd.Ref(), "", at, attr(flags), attrSize)
	}
	return Tree{fd.Ref()}
}

// CloneAt copies the mount that shows a name in an open directory, be it a symbolic
// link, which is not followed.
func CloneAt(p *spawn.Program, dir spawn.Cell, name string) Tree {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW
	return Tree{p.Result("open "+name, unix.SYS_OPEN_TREE, dir.Ref(), name, flags).Ref()}
}

// Attach makes the tree visible at target, which must exist and be of the same
// kind (directory or file), and closes the tree's descriptor.
func (t Tree) Attach(p *spawn.Program, target string) {
	p.Call("mount "+target, unix.SYS_MOVE_MOUNT, t.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	p.Call("close "+target, unix.SYS_CLOSE, t.fd)
}

// Filesystem mounts a new instance of a file system.
func Filesystem(p *spawn.Program, kind, target string, flags uintptr, options string) {
	p.Call("mount "+kind+" at "+target, unix.SYS_MOUNT, kind, target, kind, flags, options)
}

// Restrict adds flags to the mount that shows path.
func Restrict(p *spawn.Program, path string, flags uint64) {
	p.Call("restrict "+path, unix.SYS_MOUNT_SETATTR, unix.AT_FDCWD, path, 0, attr(flags), attrSize)
}

// RestrictTree does the same to the mount at path and all below it.
func RestrictTree(p *spawn.Program, path string, flags uint64) {
	p.Call("restrict "+path, unix.SYS_MOUNT_SETATTR, unix.AT_FDCWD, path, unix.AT_RECURSIVE, attr(flags), attrSize)
}

// Pivot makes the working directory, which must be the root of a mount, the
// root of the namespace, and lets go of the old root.
func Pivot(p *spawn.Program) {
	p.Call("change root", unix.SYS_PIVOT_ROOT, ".", ".")
	p.Call("drop old root", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	p.Call("enter root", unix.SYS_CHDIR, "/")
}

// Cover makes the working directory, which must be the root of a mount, the root
// of the namespace by laying it over the old root, which stays below. It is for
// a namespace whose old root holds nothing worth reaching: unlike Pivot, it costs
// no look at every thread of the host.
func Cover(p *spawn.Program) {
	p.Call("cover root", unix.SYS_MOUNT, ".", "/", nil, unix.MS_MOVE, nil)
	p.Call("change root", unix.SYS_CHROOT, ".")
	p.Call("enter root", unix.SYS_CHDIR, "/")
}

// Mkdir makes a directory. One that exists is fine.
func Mkdir(p *spawn.Program, path string, mode uint32) {
	p.Optional("make directory "+path, unix.SYS_MKDIRAT, unix.AT_FDCWD, path, mode)
}

// Symlink makes a symbolic link.
func Symlink(p *spawn.Program, target, path string) {
	p.Call("link "+path, unix.SYS_SYMLINKAT, target, unix.AT_FDCWD, path)
}

// Link makes another name for a file.
func Link(p *spawn.Program, file, path string) {
	p.Call("link "+path, unix.SYS_LINKAT, unix.AT_FDCWD, file, unix.AT_FDCWD, path, 0)
}

// WriteFile makes a file with a content.
func WriteFile(p *spawn.Program, path string, content []byte, mode uint32) {
	fd := p.Result("make "+path, unix.SYS_OPENAT, unix.AT_FDCWD, path,
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
	if len(content) > 0 {
		p.Positive("write "+path, unix.SYS_WRITE, fd.Ref(), content, len(content))
	}
	p.Call("close "+path, unix.SYS_CLOSE, fd.Ref())
}

// Chown gives a path to a user.
func Chown(p *spawn.Program, path string, uid, gid int) {
	p.Call("give away "+path, unix.SYS_FCHOWNAT, unix.AT_FDCWD, path, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
}

// TmpfsOptions returns the mount options of a tmpfs with that many bytes and
// inodes.
func TmpfsOptions(bytes, inodes int64, mode uint32) string {
	return "size=" + strconv.FormatInt(bytes, 10) +
		",nr_inodes=" + strconv.FormatInt(inodes, 10) +
		",mode=" + strconv.FormatUint(uint64(mode), 8)
}

// attrSize is the size of struct mount_attr in its first version.
const attrSize = 32

// attr returns a struct mount_attr that sets the flags.
func attr(flags uint64) []byte {
	b := make([]byte, attrSize)
	binary.NativeEndian.PutUint64(b, flags)
	return b
}
