//go:build linux

// Package unixpair is a pair of connected unix sockets between a host and what it starts:
// a connection that can carry descriptors. It knows nothing of what is said over it.
package unixpair

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
)

// Channel is our end of the connection to an agent. It is a file and not a
// *net.UnixConn because package net gives its connections the lowest number
// that is free; see package highfd.
type Channel struct {
	*os.File
	Ended func() // called when reading has come to an end; set before the connection is handed out; may be nil
}

// Read reads what the agent says. Its end may be that of the sandbox.
func (c *Channel) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	if err != nil && c.Ended != nil {
		c.Ended()
	}
	return n, err
}

var _ net.Conn = &Channel{}

// TryWrite implements guest's TryWriter.
func (c *Channel) TryWrite(b []byte) (written int) {
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
func (*Channel) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr names nothing either.
func (*Channel) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// New makes a pair of sockets of a type, such as unix.SOCK_STREAM. Both are closed by any
// exec. The caller closes both.
func New(kind int) (ours *Channel, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	fds[0] = highfd.Move(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil { // or else the poller does not take it
		closeAll(fds[:])
		return nil, nil, err
	}
	return &Channel{File: os.NewFile(uintptr(fds[0]), "agent")}, os.NewFile(uintptr(fds[1]), "host"), nil
}

// Recvmsg receives one message with what it carries.
func (c *Channel) Recvmsg(data, control []byte) (n, controlLen, flags int, err error) {
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

// Sendmsg sends one message, and what it is to carry.
func (c *Channel) Sendmsg(data, control []byte) error {
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

// maxDescriptors is how many one message can carry (SCM_MAX_FD).
const maxDescriptors = 253

// ReceiveDescriptors reads one message that carries descriptors, as
// spawn.Program.SendDescriptors sends it. The sender is trusted.
func (c *Channel) ReceiveDescriptors() ([]int, error) {
	data := make([]byte, 1)
	control := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, controlLen, flags, err := c.Recvmsg(data, control)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("the connection ended")
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, got...)
	}
	for i := range fds {
		fds[i] = highfd.Move(fds[i])
	}
	if flags&unix.MSG_CTRUNC != 0 { // there was room in the message, but not in our table
		closeAll(fds)
		return nil, unix.EMFILE
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
