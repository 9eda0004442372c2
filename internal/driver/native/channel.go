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
type channel struct{ *os.File }

var _ net.Conn = channel{}

// LocalAddr names nothing: a pair of sockets has no addresses.
func (channel) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr names nothing either.
func (channel) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

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
	return &channel{os.NewFile(uintptr(fds[0]), "agent")}, os.NewFile(uintptr(fds[1]), "host"), nil
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
