//go:build linux

package native

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
)

// channel is our end of the connection to an agent. It is a file and not a
// *net.UnixConn because package net gives its connections the lowest number
// that is free; see package highfd.
type channel struct {
	*os.File
	ended func() // called when reading has come to an end; may be nil
}

// Read reads what the agent says. Its end may be that of the sandbox.
func (c *channel) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	if err != nil && c.ended != nil {
		c.ended()
	}
	return n, err
}

var _ net.Conn = &channel{}

// TryWrite implements guest's TryWriter.
func (c *channel) TryWrite(b []byte) (written int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		written, err = unix.Write(int(fd), b)
		return true
	})
	if err != nil {
		return 0
	}
	return written
}

// LocalAddr names nothing: a pair of sockets has no addresses.
func (*channel) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr names nothing either.
func (*channel) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// socketPair makes the connection to the agent.
func socketPair(kind int) (ours *channel, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	fds[0] = highfd.Move(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil { // or else the poller does not take it
		closeAll(fds[:])
		return nil, nil, err
	}
	return &channel{File: os.NewFile(uintptr(fds[0]), "agent")}, os.NewFile(uintptr(fds[1]), "host"), nil
}

// recvmsg receives one message with what it carries.
func (c *channel) recvmsg(data, control []byte) (n, controlLen, flags int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	waitErr := raw.Read(untilReady(func(fd int) error {
		n, controlLen, flags, _, err = unix.Recvmsg(fd, data, control, unix.MSG_CMSG_CLOEXEC)
		return err
	}))
	return n, controlLen, flags, errors.Join(waitErr, err)
}

// sendmsg sends one message, and what it is to carry.
func (c *channel) sendmsg(data, control []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	waitErr := raw.Write(untilReady(func(fd int) error {
		err = unix.Sendmsg(fd, data, control, nil, unix.MSG_NOSIGNAL)
		return err
	}))
	return errors.Join(waitErr, err)
}

// untilReady makes of a system call what the poller repeats until it need not wait.
func untilReady(call func(fd int) error) func(fd uintptr) bool {
	return func(fd uintptr) bool {
		for {
			if err := call(int(fd)); !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	}
}
