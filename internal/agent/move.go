//go:build linux

package agent

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// move gives a path another name.
func (a *agent) move(c *channel, req wire.Request) wire.Outcome {
	if f := a.rename(c, req.Move.From, req.Move.To); f != nil {
		return failed(f)
	}
	return wire.Outcome{}
}

func (a *agent) rename(c *channel, from, to string) *wire.Fault {
	fromDir, fromBase, err := a.openParent(from, false)
	if err != nil {
		return a.fileFault(err)
	}
	defer sysClose(fromDir) //nolint:errcheck // a directory
	var st unix.Stat_t
	if err := sysFstatat(fromDir, fromBase, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return a.fileFault(err)
	}
	toDir, toBase, err := a.openParent(to, true)
	if err != nil {
		return a.fileFault(err)
	}
	defer sysClose(toDir) //nolint:errcheck // a directory
	replace, refusal := replaceable(toDir, toBase, typeOf(st.Mode))
	if refusal != nil {
		return refusal
	}
	err = renameat(fromDir, fromBase, toDir, toBase, replace)
	if errors.Is(err, unix.EXDEV) {
		if typeOf(st.Mode) != wire.TypeFile {
			return fault(sandbox.CodePathInvalid, "only regular files can be moved between the file systems of a sandbox")
		}
		err = a.carry(c, fromDir, fromBase, toDir, toBase)
	}
	if err != nil {
		return a.moveFault(err)
	}
	return nil
}

// replaceable says whether the new name is taken by a regular file, which a
// file may replace. What else is there stays.
func replaceable(dir int, base, kind string) (bool, *wire.Fault) {
	var st unix.Stat_t
	err := sysFstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, fileFault(err)
	case typeOf(st.Mode) != wire.TypeFile:
		return false, fault(sandbox.CodeNotRegularFile, "the new name belongs to something that is not a regular file")
	case kind == wire.TypeDir:
		return false, fault(sandbox.CodePathInvalid, "a directory cannot replace a file")
	}
	return true, nil
}

// renameat renames. Without replace nothing is overwritten, whatever appears
// meanwhile; with it the kernel still refuses to put a file in a directory's
// place.
func renameat(fromDir int, from string, toDir int, to string, replace bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	err := sysRenameat2(fromDir, from, toDir, to, flags)
	if errors.Is(err, unix.EINVAL) && !replace {
		// A file system of the host's that cannot promise it. A directory that
		// would go into itself fails again.
		err = sysRenameat2(fromDir, from, toDir, to, 0)
	}
	return err
}

// carry moves a regular file to another file system: the new one appears
// whole, and then the old one goes.
func (a *agent) carry(c *channel, fromDir int, from string, toDir int, to string) error {
	in, err := a.openAt(fromDir, from, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0, noLinks)
	if err != nil {
		return err
	}
	defer sysClose(in) //nolint:errcheck // read only
	st, err := regular(in)
	if err != nil {
		return err
	}
	part := ".pinfold-move-" + strconv.FormatUint(uint64(c.id), 10)
	out, err := a.openAt(toDir, part, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600, noLinks)
	if err != nil {
		return err
	}
	defer sysClose(out) //nolint:errcheck // written without buffering: errors have been seen
	err = a.copyAll(c, out, in)
	if err == nil {
		err = a.own(out, st.Mode)
	}
	if err == nil {
		err = sysRenameat2(toDir, part, toDir, to, 0)
	}
	if err != nil {
		_ = sysUnlinkat(toDir, part, 0)
		return err
	}
	return sysUnlinkat(fromDir, from, 0)
}

// copyAll copies in pieces, each with a slot of its own.
func (a *agent) copyAll(c *channel, out, in int) error {
	step := copyRange
	var buf []byte
	for !c.abandoned() {
		n, err := step(out, in, buf)
		switch {
		case buf == nil && (errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)):
			step, buf = copyPlain, make([]byte, chunk) // file systems that do not know each other
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return err
		}
	}
	return unix.ECANCELED
}

func copyRange(out, in int, _ []byte) (int, error) {
	return sysCopyFileRange(in, out, 1<<20)
}

func copyPlain(out, in int, buf []byte) (int, error) {
	n, err := sysRead(in, buf)
	for p := buf[:max(n, 0)]; err == nil && len(p) > 0; {
		var k int
		k, err = sysWrite(out, p)
		p = p[max(k, 0):]
	}
	return n, err
}

func (a *agent) moveFault(err error) *wire.Fault {
	switch {
	case errors.Is(err, unix.EINVAL):
		return fault(sandbox.CodePathInvalid, "a directory cannot be moved into itself")
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return fault(sandbox.CodePathInvalid, "the new name belongs to something that cannot be replaced")
	}
	return a.fileFault(err)
}
