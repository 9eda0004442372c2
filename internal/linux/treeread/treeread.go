//go:build linux

// Package treeread reads what directories hold, of which a guest made every name and every
// byte, into a stream of package filetree. Nothing in there may change meanwhile: it is for
// sandboxes that stand still.
//
// It opens one name at a time, below a descriptor that its caller gives, through no link and
// across no mount, and looks at what it has opened before it reads it. It keeps no path and
// recurses nowhere: a tree may be as deep as its file system lets it, and what it costs in
// descriptors and memory does not grow with that but for 40 bytes a level.
package treeread

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/filetree"
	"pinfold/sandbox"
)

// Place is a directory to read: Path below the directory Root, and the name that it has in
// the stream. Open, if there is one, opens what this process may not.
type Place struct {
	Name string
	Root int
	Path string
	Open func(dir int, name string, flags, resolve uint64) (int, error) // as openat2(2) has them
}

// Limits bound what is read, in bytes of content and in entries: a machine's own limits.
type Limits struct{ Bytes, Entries int64 }

// Read writes what the places hold to w, whose End is the caller's. Devices, pipes, sockets
// and what cannot be read are left out, and counted. A place that is not there is left out too.
func Read(ctx context.Context, places []Place, l Limits, w *filetree.Writer) error {
	base := uint64(0)
	for _, p := range places {
		t := &tree{ctx: ctx, w: w, mayOpen: p.Open, limits: l, base: base, numbers: map[uint64]*several{}, entries: make([]byte, 8<<10)}
		fd, err := t.openBelow(p.Root, strings.TrimPrefix(p.Path, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
		if unreadable(err) {
			w.LeaveOut()
			continue
		}
		if err != nil { // a want of descriptors, say: no sandbox without its home is whole
			return fmt.Errorf("opening %s: %w", p.Name, err)
		}
		if err := w.Entry(filetree.Entry{Kind: filetree.Place, Name: p.Name}); err != nil {
			_ = unix.Close(fd)
			return err
		}
		if err := t.read(fd); err != nil {
			return fmt.Errorf("reading %s: %w", p.Name, err)
		}
		base += uint64(len(t.numbers))
	}
	return nil
}

// resolve has no name lead out of the directory in which it is.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func (t *tree) openBelow(dir int, name string, flags uint64) (int, error) {
	return t.open(dir, name, flags|unix.O_NONBLOCK|unix.O_NOCTTY, resolve)
}

// open opens something, if need be with more rights than ours.
func (t *tree) open(dir int, name string, flags, resolve uint64) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags, Resolve: resolve})
		switch {
		case errors.Is(err, unix.EACCES) && t.mayOpen != nil:
			return t.mayOpen(dir, name, flags, resolve)
		case !errors.Is(err, unix.EINTR):
			return fd, err
		}
	}
}

// path opens something to look at it, not into it.
func (t *tree) path(dir int, name string) (int, error) {
	return t.open(dir, name, unix.O_PATH, resolve)
}

// stat looks at what bears a name.
func (t *tree) stat(dir int, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EACCES) {
		return st, err
	}
	fd, err := t.path(dir, name)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd) //nolint:errcheck // O_PATH
	return st, unix.Fstat(fd, &st)
}

// readlink is readlinkat(2).
func (t *tree) readlink(dir int, name string, b []byte) (int, error) {
	n, err := unix.Readlinkat(dir, name, b)
	if !errors.Is(err, unix.EACCES) {
		return n, err
	}
	fd, err := t.path(dir, name)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // O_PATH
	return unix.Readlinkat(fd, "", b)
}

// tree is one place that is being read.
type tree struct {
	ctx     context.Context //nolint:containedctx // the call's own
	w       *filetree.Writer
	mayOpen func(dir int, name string, flags, resolve uint64) (int, error) // nil: nobody may more than we
	limits  Limits
	base    uint64              // the highest number in the places before
	numbers map[uint64]*several // of files with several names, by inode
	levels  []level             // from the place down to where we are
	entries []byte              // of directories, as the kernel has them
	buf     []byte              // content
}

// several is a file with several names.
type several struct {
	number uint64
	names  uint64 // that have not been seen
}

// level is a directory that has been begun.
type level struct {
	dev, ino uint64
	fd       int   // -1: closed, since too many are open
	next     int64 // where its next directory is looked for
	mode     uint32
	mtime    int64
}

// keptOpen is how many directories on the way down stay open.
const keptOpen = 32

// read reads the place. It closes fd.
func (t *tree) read(fd int) error {
	defer func() {
		for _, l := range t.levels {
			if l.fd >= 0 {
				_ = unix.Close(l.fd)
			}
		}
	}()
	if err := t.push(fd); err != nil {
		return err
	}
	for len(t.levels) > 0 {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		l := &t.levels[len(t.levels)-1]
		name, found, err := t.nextDir(l)
		if err != nil {
			return err
		}
		if !found {
			if err := t.pop(); err != nil {
				return err
			}
			continue
		}
		if err := t.down(l.fd, name); err != nil {
			return err
		}
	}
	return nil
}

// down begins a directory.
func (t *tree) down(parent int, name string) error {
	fd, err := t.openBelow(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if unreadable(err) {
		t.w.LeaveOut()
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.entry(filetree.Entry{Kind: filetree.Dir, Name: name}); err != nil {
		_ = unix.Close(fd)
		return err
	}
	return t.push(fd)
}

// push makes an open directory the one where we are, and reads all in it that is none.
func (t *tree) push(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	if n := len(t.levels); n >= keptOpen && t.levels[n-1].fd >= 0 {
		_ = unix.Close(t.levels[n-1].fd)
		t.levels[n-1].fd = -1
	}
	t.levels = append(t.levels, level{dev: st.Dev, ino: st.Ino, fd: fd, mode: st.Mode & 0o1777, mtime: st.Mtim.Nano()})
	return t.each(fd, 0, func(e dirent) (bool, error) {
		if e.kind == unix.DT_DIR {
			return true, nil
		}
		return true, t.other(fd, e.name)
	})
}

// pop ends the directory where we are and goes back to the one above it.
func (t *tree) pop() error {
	l := t.levels[len(t.levels)-1]
	if err := t.w.Entry(filetree.Entry{Kind: filetree.Up, Mode: l.mode, MtimeNS: l.mtime}); err != nil {
		return err
	}
	t.levels = t.levels[:len(t.levels)-1]
	defer unix.Close(l.fd) //nolint:errcheck // only read
	if len(t.levels) == 0 {
		return nil
	}
	up := &t.levels[len(t.levels)-1]
	if up.fd >= 0 {
		return nil
	}
	fd, err := t.open(l.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != up.dev || st.Ino != up.ino {
		_ = unix.Close(fd)
		return errors.Join(errMoved, err)
	}
	up.fd = fd
	return nil
}

// errMoved means that the tree did not stand still.
var errMoved = errors.New("something moved while it was read")

// nextDir returns the next directory in the one where we are.
func (t *tree) nextDir(l *level) (name string, found bool, err error) {
	err = t.each(l.fd, l.next, func(e dirent) (bool, error) {
		l.next = e.next
		if e.kind == unix.DT_DIR {
			name, found = e.name, true
		}
		return !found, nil
	})
	return name, found, err
}

// dirent is one entry of a directory.
type dirent struct {
	name string
	kind uint8
	next int64 // where the next one is
}

// each calls f for the entries of a directory from a position on, until it returns false.
func (t *tree) each(fd int, from int64, f func(dirent) (bool, error)) error {
	if _, err := unix.Seek(fd, from, unix.SEEK_SET); err != nil {
		return err
	}
	for {
		n, err := unix.Getdents(fd, t.entries)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for b := t.entries[:n]; len(b) > 19; { // struct linux_dirent64, getdents64(2)
			length := int(binary.NativeEndian.Uint16(b[16:]))
			if length <= 19 || length > len(b) {
				return errMoved
			}
			raw, _, _ := bytes.Cut(b[19:length], []byte{0})
			e := dirent{string(raw), b[18], int64(binary.NativeEndian.Uint64(b[8:]))} //nolint:gosec // as the kernel says
			b = b[length:]
			if e.name == "." || e.name == ".." {
				continue
			}
			if e.kind == unix.DT_UNKNOWN {
				e.kind = t.kindOf(fd, e.name)
			}
			if more, err := f(e); err != nil || !more {
				return err
			}
		}
	}
}

// kindOf looks where the file system does not say.
func (t *tree) kindOf(dir int, name string) uint8 {
	if st, err := t.stat(dir, name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.DT_DIR
	}
	return unix.DT_REG
}

// entry writes one, within the limits.
func (t *tree) entry(e filetree.Entry) error {
	so := t.w.So()
	if so.Entries() >= t.limits.Entries || so.Bytes > t.limits.Bytes {
		return t.tooMuch()
	}
	return t.w.Entry(e)
}

func (t *tree) tooMuch() error {
	return &sandbox.Error{Code: sandbox.CodeTooLarge, Message: fmt.Sprintf(
		"the sandbox's files are more than %d, or more than %s together", t.limits.Entries, sandbox.FormatSize(t.limits.Bytes))}
}

// unreadable says whether something is not there for us, which is no fault of ours.
func unreadable(err error) bool {
	for _, known := range []error{unix.EACCES, unix.EPERM, unix.ENOENT, unix.ELOOP, unix.ENXIO, unix.EXDEV, unix.ENOTDIR, unix.EAGAIN} { // the last: the guest has a lease on it
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// WhileAlive calls f, whose context ends when dead is closed; the error is ended then.
func WhileAlive(ctx context.Context, dead <-chan struct{}, ended error, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-dead:
			cancel(ended)
		case <-over:
		}
	}()
	err := f(ctx)
	select {
	case <-dead: // whatever came of that: it did not stand still
		return ended
	default:
		return err
	}
}
