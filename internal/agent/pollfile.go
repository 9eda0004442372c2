//go:build linux

package agent

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollFile is our end of a pipe or socket. It waits in the runtime's poller
// and does its input and output with raw system calls.
type pollFile struct {
	*os.File
	raw syscall.RawConn
}

// newPollFile takes over a descriptor and makes it non-blocking.
func newPollFile(fd int, name string) (*pollFile, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &pollFile{f, raw}, nil
}

// Read waits for data and reads some of it.
func (f *pollFile) Read(p []byte) (int, error) {
	var n int
	var errno syscall.Errno
	err := f.raw.Read(func(fd uintptr) bool {
		n, errno = rawIO(unix.SYS_READ, fd, p)
		return errno != unix.EAGAIN
	})
	return readResult(n, errno, err)
}

// ReadNow reads what is there. It returns errWouldBlock when nothing is.
func (f *pollFile) ReadNow(p []byte) (int, error) {
	var n int
	var errno syscall.Errno
	err := f.raw.Control(func(fd uintptr) { n, errno = rawIO(unix.SYS_READ, fd, p) })
	return readResult(n, errno, err)
}

var errWouldBlock = errors.New("nothing to read yet")

func readResult(n int, errno syscall.Errno, err error) (int, error) {
	switch {
	case err != nil:
		return 0, err
	case errno == unix.EAGAIN:
		return 0, errWouldBlock
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

// pending returns the number of bytes that wait in a pipe.
func (f *pollFile) pending() int {
	n := 0
	_ = f.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}
