//go:build linux

package agent

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// pollFile is our end of a pipe or socket. It waits in the runtime's poller
// and does its input and output with raw system calls.
type pollFile struct {
	*os.File
	raw syscall.RawConn
	tty bool // our end of a terminal: EIO is the end
}

// newPollFile takes over a descriptor and makes it non-blocking.
func newPollFile(fd int, name string) (*pollFile, error) {
	if err := sysSetNonblock(fd); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &pollFile{File: f, raw: raw}, nil
}

// Read waits for data and reads some of it.
func (f *pollFile) Read(p []byte) (int, error) {
	var n int
	var errno syscall.Errno
	err := f.raw.Read(func(fd uintptr) bool {
		n, errno = rawIO(unix.SYS_READ, fd, p)
		return errno != unix.EAGAIN
	})
	return f.result(n, errno, err)
}

// readFrame waits for data and reads at most n bytes into a fresh data frame.
// now: it does not wait, and says errWouldBlock when nothing is there. The
// frame is taken from pieces, where it goes back when it has been sent; while
// nothing comes there is none. turn, which may be nil, is locked when there is a
// frame, and has been since before it was read.
func (f *pollFile) readFrame(pieces *sync.Pool, n int, now bool, turn *sync.Mutex) (frame *[]byte, k int, err error) {
	var errno syscall.Errno
	lock, unlock := func() {}, func() {}
	if turn != nil {
		lock, unlock = turn.Lock, turn.Unlock
	}
	read := func(fd uintptr) bool {
		lock()
		frame = pieces.Get().(*[]byte) //nolint:errcheck,forcetypeassert // nothing else is in there
		k, errno = rawIO(unix.SYS_READ, fd, (*frame)[wire.DataHeader:wire.DataHeader+n])
		if errno == unix.EAGAIN && !now {
			pieces.Put(frame)
			frame = nil
			unlock()
			return false
		}
		return true
	}
	if now {
		err = f.raw.Control(func(fd uintptr) { read(fd) })
	} else {
		err = f.raw.Read(read)
	}
	if k, err = f.result(k, errno, err); err != nil && frame != nil {
		pieces.Put(frame)
		frame = nil
		unlock()
	}
	return frame, k, err
}

// readByte reads one byte if there is one; errWouldBlock when not.
func (f *pollFile) readByte() error {
	var b [1]byte
	var n int
	var errno syscall.Errno
	err := f.raw.Control(func(fd uintptr) { n, errno = rawIO(unix.SYS_READ, fd, b[:]) })
	_, err = f.result(n, errno, err)
	return err
}

var errWouldBlock = errors.New("nothing to read yet")

func (f *pollFile) result(n int, errno syscall.Errno, err error) (int, error) {
	switch {
	case err != nil:
		return 0, err
	case errno == unix.EAGAIN:
		return 0, errWouldBlock
	case errno == unix.EIO && f.tty:
		return 0, io.EOF
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p.
func (f *pollFile) Write(p []byte) (int, error) {
	done := 0
	var errno syscall.Errno
	err := f.raw.Write(func(fd uintptr) bool {
		for done < len(p) {
			var n int
			if n, errno = rawIO(unix.SYS_WRITE, fd, p[done:]); errno != 0 {
				return errno != unix.EAGAIN
			}
			done += n
		}
		return true
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return done, err
}

// pending returns the number of bytes that wait to be read.
func (f *pollFile) pending() int {
	n := 0
	_ = f.raw.Control(func(fd uintptr) { n = sysPending(int(fd)) })
	return n
}
