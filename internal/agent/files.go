//go:build linux

package agent

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// write makes or replaces a regular file with what comes on stream 0.
func (a *agent) write(c *channel, req wire.Request) wire.Outcome {
	fd, err := a.create(req.File.Path)
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer sysClose(fd) //nolint:errcheck // written without buffering: errors have been seen
	size, err := a.receive(c, fd, req.File.Size)
	if err == nil && size != req.File.Size && req.File.Size >= 0 {
		return failed(fault(sandbox.CodeSpecInvalid, "the content does not have the announced size"))
	}
	if err == nil {
		err = a.own(fd, req.File.Mode)
	}
	if err != nil {
		return failed(a.fileFault(err))
	}
	return wire.Outcome{Size: size}
}

// put writes small files whose content came with the request.
func (a *agent) put(_ *channel, req wire.Request) wire.Outcome {
	for i, f := range req.Put.Files {
		if err := a.putFile(f); err != nil {
			o := failed(a.fileFault(err))
			o.Size = int64(i)
			return o
		}
	}
	return wire.Outcome{Size: int64(len(req.Put.Files))}
}

func (a *agent) putFile(f wire.PutFile) error {
	fd, err := a.create(f.Path)
	if err != nil {
		return err
	}
	defer sysClose(fd) //nolint:errcheck // written without buffering: errors have been seen
	if err := a.writeAll(fd, f.Content); err != nil {
		return err
	}
	return a.own(fd, f.Mode)
}

// create opens an empty regular file for writing.
func (a *agent) create(p string) (int, error) {
	dir, base, err := a.openParent(p, true)
	if err != nil {
		return -1, err
	}
	defer sysClose(dir) //nolint:errcheck // a directory
	// O_NONBLOCK: a pipe in the file's place must not hold us. Truncated only
	// once we know that it is a regular file.
	fd, err := a.openAt(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600, noLinks)
	if err != nil {
		return -1, err
	}
	if _, err = regular(fd); err == nil {
		err = sysFtruncate(fd, 0)
	}
	if err != nil {
		_ = sysClose(fd)
		return -1, err
	}
	return fd, nil
}

// regular returns the file's description if it is a regular file.
func regular(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := sysFstat(fd, &st); err != nil {
		return st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return st, unix.ENXIO
	}
	return st, nil
}

// receive writes stream 0 to a file, at most size bytes unless size is negative.
func (a *agent) receive(c *channel, fd int, size int64) (int64, error) {
	var total int64
	for p := c.in.Next(); p != nil; p = c.in.Next() {
		if total += int64(len(p)); size >= 0 && total > size {
			return total, nil
		}
		if err := a.writeAll(fd, p); err != nil {
			return total, err
		}
		c.received()
	}
	if c.abandoned() {
		return total, unix.ECANCELED
	}
	return total, nil
}

func (a *agent) writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := sysWrite(fd, p)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}

// read sends a regular file, or a part of it, on stream 1.
func (a *agent) read(c *channel, req wire.Request) wire.Outcome {
	r := req.File
	fd, st, err := a.openRegular(r.Path)
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer sysClose(fd) //nolint:errcheck // read only
	limit := r.Size
	switch {
	case !r.Part && st.Size > limit:
		return failed(fault(sandbox.CodeTooLarge, "the file is larger than asked for"))
	case r.Part && (r.Offset < 0 || limit < -1):
		return failed(fault(sandbox.CodeSpecInvalid, "no such range"))
	case r.Inode != 0 && (st.Ino != r.Inode || limit >= 0 && st.Size-r.Offset < limit):
		return failed(fault(sandbox.CodeConflict, "another file has the name by now, or it has become shorter"))
	case limit == -1:
		limit = math.MaxInt64
	}
	offset, total := r.Offset, int64(0)
	for !r.Part || total < limit {
		most := chunk
		if r.Part {
			most = int(min(chunk, limit-total))
		}
		n, err := a.sendFile(c, fd, offset+total, most)
		if err != nil {
			return failed(a.fileFault(err))
		}
		if n == 0 {
			break
		}
		if total += int64(n); total > limit {
			return failed(fault(sandbox.CodeTooLarge, "the file grew while it was read"))
		}
	}
	a.frame(wire.AppendEOF(nil, c.id, wire.Stdout))
	return wire.Outcome{Size: total}
}

// sendFile sends at most most bytes of a file, as much as may be sent now; 0
// is the end of the file. It waits without a slot: a slow host holds up nobody
// else.
func (a *agent) sendFile(c *channel, fd int, offset int64, most int) (int, error) {
	credit := c.out[wire.Stdout]
	may := credit.Take(most)
	if may == 0 {
		return 0, unix.ECANCELED
	}
	frame := a.pieces.Get().(*[]byte) //nolint:errcheck,forcetypeassert // nothing else is in there
	n, err := sysPread(fd, (*frame)[wire.DataHeader:wire.DataHeader+may], offset)
	n = max(n, 0)
	credit.Return(may - n)
	if n == 0 || err != nil {
		a.pieces.Put(frame)
		return 0, err
	}
	c.sendPiece(wire.Stdout, frame, n)
	return n, nil
}

func (a *agent) openRegular(p string) (int, unix.Stat_t, error) {
	rel, err := a.relative(p)
	if err != nil {
		return -1, unix.Stat_t{}, err
	}
	fd, err := a.openAt(a.root, rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0, noLinks)
	if err != nil {
		return -1, unix.Stat_t{}, err
	}
	st, err := regular(fd)
	if err != nil {
		_ = sysClose(fd)
	}
	return fd, st, err
}

// stat describes a path; a symbolic link in its last component is described
// itself.
func (a *agent) stat(_ *channel, req wire.Request) wire.Outcome {
	rel, err := a.relative(req.File.Path)
	if err != nil {
		return failed(a.fileFault(err))
	}
	fd, err := a.openAt(a.root, rel, unix.O_PATH|unix.O_NOFOLLOW, 0, 0)
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer sysClose(fd) //nolint:errcheck // O_PATH
	var st unix.Stat_t
	if err := sysFstat(fd, &st); err != nil {
		return failed(a.fileFault(err))
	}
	found := &wire.Stat{
		Type: typeOf(st.Mode), Size: st.Size, Mode: st.Mode & 0o7777,
		MtimeNS: st.Mtim.Nano(), UID: int(st.Uid), GID: int(st.Gid), Inode: st.Ino,
	}
	if found.Type == wire.TypeSymlink {
		found.Target = readLink(fd, "")
	}
	return wire.Outcome{Stat: found}
}

// mkdir makes a directory and its parents. One that exists is left as it is.
func (a *agent) mkdir(_ *channel, req wire.Request) wire.Outcome {
	parent, base, err := a.openParent(req.File.Path, true)
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer sysClose(parent) //nolint:errcheck // a directory
	fd, err := a.makeDir(parent, base, req.File.Mode)
	if err != nil {
		return failed(a.fileFault(err))
	}
	_ = sysClose(fd)
	return wire.Outcome{}
}
