//go:build linux

// Package erofs shows directories of this host as one read-only file system, in the
// format of the kernel's EROFS, without copying them: what describes the files is made
// once, in memory, and what is in them is read when it is asked for. A machine's disk is
// so made in the time of a walk, and takes no room.
//
// A file that has changed since the walk cannot be read: nobody gets a part of one file
// and a part of another. Set-user-id bits, device files and extended attributes, among
// them capabilities, are left out.
//
// The format is in the kernel's fs/erofs/erofs_fs.h: the block size is 4 KiB, every inode
// is an extended one, no data is compressed, and the ends of directories and the targets
// of links stand behind their inode.
package erofs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// node is one file, directory or link of the image.
type node struct {
	mode  uint32 // type and permissions, as in stat(2)
	uid   uint32
	gid   uint32
	mtime time.Time
	size  int64
	nid   uint64
	block uint32 // where its data begins

	children map[string]*node // of a directory
	sorted   []entry          // the same, as they are written, with "." and ".."
	target   string           // of a link
	content  []byte           // of a file that is nowhere else
	host     *stamp           // of a file of the host's
}

// stamp is what a file of the host's was when it was seen.
type stamp struct {
	dir       int32 // in Image.dirs
	dev, ino  uint64
	sec, nsec int64
}

func (n *node) is(kind uint32) bool { return n.mode&unix.S_IFMT == kind }

// Builder collects what an image shows. It is for one goroutine.
type Builder struct {
	root *node
	dirs []string
	all  int
}

// MaxFiles bounds an image: each file costs some 300 bytes of memory while it is made.
const MaxFiles = 4 << 20

// New begins an empty image.
func New() *Builder {
	return &Builder{root: &node{mode: unix.S_IFDIR | 0o755, children: map[string]*node{}}}
}

// Dir makes a directory, and those above it.
func (b *Builder) Dir(name string, mode uint32, uid, gid int) error {
	n, err := b.dir(name)
	if err == nil {
		n.mode, n.uid, n.gid = unix.S_IFDIR|mode&0o1777, uint32(uid), uint32(gid) //nolint:gosec // ids
	}
	return err
}

// File makes a file of root's.
func (b *Builder) File(name string, mode uint32, content []byte) error {
	return b.put(name, &node{mode: unix.S_IFREG | mode&0o777, content: content, size: int64(len(content))})
}

// Link makes a symbolic link.
func (b *Builder) Link(name, target string) error {
	return b.put(name, &node{mode: unix.S_IFLNK | 0o777, target: target, size: int64(len(target))})
}

// dir returns a directory, which it makes if there is none.
func (b *Builder) dir(name string) (*node, error) {
	n := b.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		next, ok := n.children[part]
		if !ok {
			next = &node{mode: unix.S_IFDIR | 0o755, children: map[string]*node{}}
			if err := b.add(n, part, next); err != nil {
				return nil, err
			}
		}
		if n = next; n.children == nil {
			return nil, fmt.Errorf("%s: %w", name, unix.ENOTDIR)
		}
	}
	return n, nil
}

func (b *Builder) put(name string, n *node) error {
	above, err := b.dir(path.Dir(name))
	if err != nil {
		return err
	}
	return b.add(above, path.Base(name), n)
}

func (b *Builder) add(above *node, name string, n *node) error {
	switch {
	case above.children[name] != nil:
		return fmt.Errorf("%s: %w", name, unix.EEXIST)
	case len(name) > 255 || len(n.target) > 4095:
		return fmt.Errorf("%.60s: %w", name, unix.ENAMETOOLONG)
	case b.all >= MaxFiles:
		return fmt.Errorf("there are more than %d files", MaxFiles)
	}
	b.all++
	above.children[name] = n
	return nil
}

// Tree shows a directory or a file of the host's, by its absolute path, with everything
// that is mounted below it. Links are shown, not followed. What cannot be looked at is left
// out, as it would be for a program on the host.
func (b *Builder) Tree(ctx context.Context, name, host string) error {
	info, err := os.Lstat(host)
	if err != nil {
		return err
	}
	if info.IsDir() {
		n, err := b.dir(name)
		if err != nil {
			return err
		}
		n.describe(info)
		return b.walk(ctx, n, host)
	}
	above, err := b.dir(path.Dir(name))
	if err != nil {
		return err
	}
	b.dirs = append(b.dirs, filepath.Dir(host))
	return b.entry(ctx, above, path.Base(name), info, len(b.dirs)-1)
}

// walk adds what is in a directory of the host's.
func (b *Builder) walk(ctx context.Context, n *node, host string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	entries, err := os.ReadDir(host)
	if err != nil && len(entries) == 0 {
		return nil // as Tree says
	}
	b.dirs = append(b.dirs, host)
	at := len(b.dirs) - 1
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		if err := b.entry(ctx, n, e.Name(), info, at); err != nil {
			return err
		}
	}
	return nil
}

// entry adds one file of a directory of the host's, which is b.dirs[at].
func (b *Builder) entry(ctx context.Context, above *node, name string, info fs.FileInfo, at int) error {
	n, dir := &node{}, b.dirs[at]
	n.describe(info)
	switch {
	case info.IsDir():
		n.children = map[string]*node{}
		if err := b.add(above, name, n); err != nil {
			return err
		}
		return b.walk(ctx, n, filepath.Join(dir, name))
	case n.is(unix.S_IFLNK):
		target, err := os.Readlink(filepath.Join(dir, name))
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		n.target, n.size = target, int64(len(target))
	case n.is(unix.S_IFREG):
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return errors.New("erofs: this system does not say what a file is")
		}
		if info.Name() != name { // shown under another name
			return fmt.Errorf("%s is shown as %s: %w", info.Name(), name, unix.EINVAL)
		}
		n.size = info.Size()
		n.host = &stamp{dir: int32(at), dev: st.Dev, ino: st.Ino, sec: st.Mtim.Sec, nsec: st.Mtim.Nsec} //nolint:gosec // below MaxFiles
	default:
		return nil
	}
	return b.add(above, name, n)
}

// describe takes over what a file of the host's is like.
func (n *node) describe(info fs.FileInfo) {
	n.mtime = info.ModTime()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		n.mode, n.uid, n.gid = st.Mode&^(unix.S_ISUID|unix.S_ISGID), st.Uid, st.Gid
	}
}

// entry is a name in a directory.
type entry struct {
	name string
	to   *node
}

// sort puts a directory's names in the order in which the kernel looks for them.
func (n *node) sort(above *node) {
	n.sorted = []entry{{".", n}, {"..", above}}
	for name, c := range n.children {
		n.sorted = append(n.sorted, entry{name, c})
	}
	slices.SortFunc(n.sorted, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
}
