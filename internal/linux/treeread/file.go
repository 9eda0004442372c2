//go:build linux

package treeread

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"
	"pinfold/internal/filetree"
)

// other reads what is no directory.
func (t *tree) other(dir int, name string) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	st, err := t.stat(dir, name)
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return t.symlink(dir, name, st)
	case unix.S_IFREG:
		return t.regular(dir, name, st)
	}
	t.w.LeaveOut()
	return nil
}

func (t *tree) symlink(dir int, name string, st unix.Stat_t) error {
	b := make([]byte, filetree.MaxTarget+1)
	n, err := t.readlink(dir, name, b)
	if err != nil {
		return err
	}
	if n > filetree.MaxTarget {
		t.w.LeaveOut()
		return nil
	}
	return t.entry(filetree.Entry{Kind: filetree.Symlink, Name: name, MtimeNS: st.Mtim.Nano(), Target: string(b[:n])})
}

// regular reads a regular file, or says that it is another name of one that was read.
func (t *tree) regular(dir int, name string, st unix.Stat_t) error {
	if known := t.numbers[st.Ino]; known != nil {
		known.names--
		return t.entry(filetree.Entry{Kind: filetree.Link, Name: name, Number: known.number, Last: known.names == 0})
	}
	fd, err := t.openBelow(dir, name, unix.O_RDONLY)
	if unreadable(err) {
		t.w.LeaveOut()
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	var opened unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return err
	}
	if opened.Mode&unix.S_IFMT != unix.S_IFREG || opened.Ino != st.Ino || opened.Size != st.Size {
		return errMoved
	}
	// A set-user-id bit would give nobody anything in a sandbox, and stays behind.
	e := filetree.Entry{Kind: filetree.File, Name: name, Mode: st.Mode & 0o777, MtimeNS: st.Mtim.Nano(), Size: st.Size}
	if st.Nlink > 1 {
		e.Number = t.base + uint64(len(t.numbers)) + 1
		t.numbers[st.Ino] = &several{e.Number, uint64(st.Nlink) - 1} //nolint:unconvert // not everywhere as long
	}
	if err := t.entry(e); err != nil {
		return err
	}
	return t.content(fd, st.Size)
}

// content reads a file, hole by hole.
func (t *tree) content(fd int, size int64) error {
	for at := int64(0); at < size; {
		from, err := unix.Seek(fd, at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // nothing but a hole follows
			from = size
		case errors.Is(err, unix.EINVAL): // this file system knows no holes
			from = at
		case err != nil:
			return err
		}
		if from = min(from, size); from > at {
			if err := t.w.Hole(from - at); err != nil {
				return err
			}
		}
		to, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		if err != nil {
			to = size
		}
		if err := t.data(fd, from, min(to, size)); err != nil {
			return err
		}
		at = min(to, size)
	}
	return nil
}

// data reads a part of a file that is no hole.
func (t *tree) data(fd int, from, to int64) error {
	if t.buf == nil {
		t.buf = make([]byte, filetree.MaxData)
	}
	for from < to {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		n, err := unix.Pread(fd, t.buf[:min(int64(len(t.buf)), to-from)], from)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.Join(errMoved, io.ErrUnexpectedEOF)
		}
		if t.w.So().Bytes > t.limits.Bytes {
			return t.tooMuch()
		}
		if err := t.w.Data(t.buf[:n]); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}
