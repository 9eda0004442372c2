//go:build linux

package agent

import (
	"errors"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// dial connects to a server in the sandbox and carries both directions until
// both have ended.
func (a *agent) dial(c *channel, req wire.Request) wire.Outcome {
	defer a.dials.Add(-1)
	switch port := req.Dial.Port; {
	case a.dials.Add(1) > wire.MaxDials:
		return failed(faultBusy())
	case port < 1 || port > 65535:
		return failed(fault(sandbox.CodeSpecInvalid, "no such port"))
	}
	f, err := a.connect(c, req.Dial.Port)
	if err != nil {
		return failed(dialFault(err))
	}
	defer f.Close() //nolint:errcheck // both directions have ended
	return c.carry(f)
}

// carry carries both directions of a connection until both have ended.
func (c *channel) carry(f *pollFile) wire.Outcome {
	c.event(wire.Event{Kind: wire.EventOpened})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.fromServer(f)
	}()
	c.toServer(f)
	<-ended
	return wire.Outcome{}
}

// connect tries the loopback addresses one after the other.
func (a *agent) connect(c *channel, port int) (*pollFile, error) {
	f, err := a.connectTo(c, unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil || c.abandoned() {
		return f, err
	}
	if f, second := a.connectTo(c, unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); second == nil {
		return f, nil
	}
	return nil, err
}

func (a *agent) connectTo(c *channel, family int, to unix.Sockaddr) (*pollFile, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // faster, not needed
	f, err := newPollFile(fd, "server")
	if err != nil {
		_ = sysClose(fd)
		return nil, err
	}
	c.connected(f)
	err = unix.Connect(fd, to)
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = f.waitConnected()
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// waitConnected waits for the end of a connect that is in progress.
func (f *pollFile) waitConnected() error {
	var failure error
	err := f.raw.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if failure = err; err != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return !errors.Is(err, unix.ENOTCONN) // not yet
	})
	if err != nil {
		return err
	}
	return failure
}

func dialFault(err error) *wire.Fault {
	if errors.Is(err, unix.ECONNREFUSED) {
		return fault(sandbox.CodePortClosed, "nothing listens on that port")
	}
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return fault(sandbox.CodePortClosed, "there are no sockets in this sandbox, so nothing listens on that port")
	}
	return fileFault(err)
}

// toServer writes stream 0 to the server and then shuts that direction.
func (c *channel) toServer(f *pollFile) {
	for p := c.in.Next(); p != nil; p = c.in.Next() {
		if _, err := f.Write(p); err != nil {
			c.in.Close()
			c.a.frame(wire.AppendEOF(nil, c.id, wire.Stdin))
			return
		}
		c.received()
	}
	if c.abandoned() { // which closes the socket, and may break it off: an end before that is none
		return
	}
	_ = f.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
}

// fromServer sends what the server writes as stream 1. It reads only what it
// may send, so a slow host stops the server.
func (c *channel) fromServer(f *pollFile) {
	credit := c.out[wire.Stdout]
	for {
		n := credit.Take(chunk)
		if n == 0 { // the host takes no more
			break
		}
		frame, k, err := f.readFrame(&c.a.pieces, n, false, nil)
		credit.Return(n - k)
		if err != nil {
			break
		}
		c.sendPiece(wire.Stdout, frame, k)
	}
	c.a.frame(wire.AppendEOF(nil, c.id, wire.Stdout))
}
