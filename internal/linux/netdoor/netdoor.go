//go:build linux

// Package netdoor has sockets that lie in the network namespace of another process, one that
// is being made or one that is there, and that a process outside of it serves. A socket
// belongs to the namespace in which it was made, whoever holds its descriptor: what is
// connected to inside is accepted outside, and no process inside has a part in it.
package netdoor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// backlog is how many connections wait to be accepted.
const backlog = 128

// TCP adds the steps that make a listening socket at an IPv4 address.
func TCP(p *spawn.Program, at netip.AddrPort) spawn.Cell {
	fd := socket(p, unix.SOCK_STREAM, at)
	p.Call("listen at "+at.String(), unix.SYS_LISTEN, fd.Ref(), backlog)
	return fd
}

// UDP adds the steps that make a socket for packets at an IPv4 address.
func UDP(p *spawn.Program, at netip.AddrPort) spawn.Cell { return socket(p, unix.SOCK_DGRAM, at) }

func socket(p *spawn.Program, kind int, at netip.AddrPort) spawn.Cell {
	fd := p.Result("open a door", unix.SYS_SOCKET, unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	address := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(address, unix.AF_INET)
	binary.BigEndian.PutUint16(address[2:], at.Port())
	copy(address[4:], at.Addr().AsSlice())
	p.Call("bind "+at.String(), unix.SYS_BIND, fd.Ref(), address, len(address))
	return fd
}

// OpenTCP makes a listening socket at an IPv4 address, in the namespace of the thread that
// calls.
func OpenTCP(at netip.AddrPort) (fd int, err error) {
	if fd, err = open(unix.SOCK_STREAM, at); err != nil {
		return -1, err
	}
	if err = unix.Listen(fd, backlog); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen at %s: %w", at, err)
	}
	return fd, nil
}

// OpenUDP makes a socket for packets, as OpenTCP does.
func OpenUDP(at netip.AddrPort) (fd int, err error) { return open(unix.SOCK_DGRAM, at) }

func open(kind int, at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open a door: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bind %s: %w", at, err)
	}
	return fd, nil
}

// Listener accepts what is connected to inside.
type Listener struct{ file *os.File }

// NewListener takes over a listening socket of TCP's.
func NewListener(fd int) *Listener { return &Listener{os.NewFile(uintptr(fd), "door")} } //nolint:gosec // a descriptor

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	fd := -1
	err := control(l.file.SyscallConn, func(s int) (err error) {
		fd, _, err = unix.Accept4(s, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "guest") //nolint:gosec // a descriptor
	defer f.Close()                       //nolint:errcheck // the connection has its own
	return net.FileConn(f)
}

// Close implements net.Listener.
func (l *Listener) Close() error { return l.file.Close() }

// Addr names nothing: the address is inside.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }

// Packets is a socket of UDP's.
type Packets struct{ file *os.File }

// NewPackets takes over a socket of UDP's.
func NewPackets(fd int) *Packets { return &Packets{os.NewFile(uintptr(fd), "door")} } //nolint:gosec // a descriptor

// ReadFrom reads one packet; what does not fit is lost.
func (p *Packets) ReadFrom(b []byte) (n int, from netip.AddrPort, err error) {
	err = control(p.file.SyscallConn, func(s int) error {
		var sender unix.Sockaddr
		if n, sender, err = unix.Recvfrom(s, b, 0); err != nil {
			return err
		}
		in, ok := sender.(*unix.SockaddrInet4)
		if !ok {
			return errors.New("netdoor: a packet without a sender")
		}
		from = netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)) //nolint:gosec // a port
		return nil
	})
	return n, from, err
}

// WriteTo sends one packet, or drops it where there is no room.
func (p *Packets) WriteTo(b []byte, to netip.AddrPort) error {
	return control(p.file.SyscallConn, func(s int) error {
		err := unix.Sendto(s, b, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		return err
	})
}

// Close closes the socket.
func (p *Packets) Close() error { return p.file.Close() }

// control repeats a system call until it need not wait.
func control(conn func() (syscall.RawConn, error), call func(fd int) error) error {
	raw, err := conn()
	if err != nil {
		return closed(err)
	}
	waitErr := raw.Read(func(fd uintptr) bool {
		for {
			err = call(int(fd)) //nolint:gosec // a descriptor
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if waitErr != nil {
		return closed(waitErr)
	}
	return err
}

// closed says in package net's word that a socket was closed.
func closed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return net.ErrClosed
	}
	return err
}
