//go:build linux

package native

import (
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/zygote"
)

// zygoteConn is the connection to a zygote: see zygote.Conn.
type zygoteConn struct {
	*unixpair.Channel
	control []byte     // of Receive, which one goroutine calls
	send    sync.Mutex // held while a packet is sent: the deadline is for one
}

func newZygoteConn(c *unixpair.Channel) *zygoteConn {
	return &zygoteConn{Channel: c, control: make([]byte, unix.CmsgSpace(4*4))}
}

// Send implements zygote.Conn.
func (c *zygoteConn) Send(b []byte, fds ...int) error {
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	c.send.Lock()
	defer c.send.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(zygote.ForkTimeout)) // a stopped zygote reads nothing
	return c.Sendmsg(b, control)
}

// Receive implements zygote.Conn.
func (c *zygoteConn) Receive(b []byte) (int, []int, error) {
	n, cn, flags, err := c.Recvmsg(b, c.control)
	if err != nil {
		return 0, nil, err
	}
	fds := rights(c.control[:cn])
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return 0, fds, nil
	}
	if n == 0 {
		closeAll(fds)
		return 0, nil, io.EOF
	}
	return n, fds, nil
}

// rights returns the descriptors of a message.
func rights(control []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}
