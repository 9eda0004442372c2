//go:build linux

package agent

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// doorBacklog is how many connections wait at a door to be accepted.
const doorBacklog = 128

// doors are where programs connect to what was declared. The host decides by which it
// waited at; nothing that is said here counts for it.
type doors struct {
	mu        sync.Mutex
	opened    bool
	listeners []*pollFile
}

// openDoors listens at all doors until the host closes, and carries packets meanwhile.
func (a *agent) openDoors(c *channel, req wire.Request) wire.Outcome {
	resolver, f := a.listen(req.Doors)
	if f != nil {
		return failed(f)
	}
	defer a.doors.close()
	defer resolver.Close() //nolint:errcheck // nobody hears of it
	c.connected(resolver)
	c.event(wire.Event{Kind: wire.EventOpened})
	go c.packetsIn(resolver)
	c.packetsOut(resolver)
	return wire.Outcome{}
}

// listen opens what is asked for, all of it or nothing, and once.
func (a *agent) listen(req *wire.DoorsRequest) (resolver *pollFile, f *wire.Fault) {
	d := &a.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened || len(req.At) > wire.MaxDoors {
		return nil, fault(sandbox.CodeConflict, "the doors are open already, or too many")
	}
	for _, at := range req.At {
		l, err := bound(unix.SOCK_STREAM, at)
		if err != nil {
			d.closeAll()
			return nil, fileFault(err)
		}
		d.listeners = append(d.listeners, l)
	}
	resolver, err := bound(unix.SOCK_DGRAM, req.Resolver)
	if err != nil {
		d.closeAll()
		return nil, fileFault(err)
	}
	d.opened = true
	return resolver, nil
}

// close closes all doors, for good. Who waits at one learns of it.
func (d *doors) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeAll()
}

// closeAll closes the listeners. The lock is held.
func (d *doors) closeAll() {
	for _, l := range d.listeners {
		_ = l.Close()
	}
	d.listeners = nil
}

// at returns the door of that index, or nil.
func (d *doors) at(index int) *pollFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index < 0 || index >= len(d.listeners) {
		return nil
	}
	return d.listeners[index]
}

// bound returns a socket at an address, that of a stream listening.
func bound(kind int, at wire.Address) (*pollFile, error) {
	if !at.Valid() {
		return nil, unix.EINVAL
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP)})
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, doorBacklog)
	}
	var f *pollFile
	if err == nil {
		f, err = newPollFile(fd, "door")
	}
	if err != nil {
		_ = sysClose(fd)
	}
	return f, err
}

// accept waits at a door for a program to connect, and carries both directions until both
// have ended.
func (a *agent) accept(c *channel, req wire.Request) wire.Outcome {
	door := a.doors.at(req.Accept.Door)
	if door == nil {
		return failed(fault(sandbox.CodePortClosed, "there is no such door"))
	}
	fd, errno := -1, syscall.Errno(0)
	err := door.raw.Read(func(l uintptr) bool {
		for {
			fd, errno = sysAccept(l)
			if errno != unix.EINTR && errno != unix.ECONNABORTED {
				return errno != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return failed(fault(sandbox.CodePortClosed, "the door was closed"))
	}
	if errno != 0 {
		return failed(fileFault(errno))
	}
	f, err := newPollFile(fd, "program")
	if err != nil {
		_ = sysClose(fd)
		return failed(fileFault(err))
	}
	defer f.Close() //nolint:errcheck // both directions have ended
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c.mu.Lock()
	c.reset = true
	c.mu.Unlock()
	c.connected(f)
	return c.carry(f)
}

// packetsOut sends the host what comes to the resolver, and drops what the host has not
// room for, until the socket is closed.
func (c *channel) packetsOut(resolver *pollFile) {
	b := make([]byte, wire.MaxPacketContent+1)
	for {
		n, from, err := resolver.receive(b)
		if err != nil {
			return
		}
		in, ok := from.(*unix.SockaddrInet4)
		if !ok || n > wire.MaxPacketContent {
			continue
		}
		p := wire.Packet{Peer: wire.Address{IP: in.Addr[:], Port: in.Port}, Content: b[:n]}
		c.sendAtOnce(wire.AppendPacket(nil, &p))
	}
}

// sendAtOnce sends bytes on stream 1, or drops them where the host takes no more.
func (c *channel) sendAtOnce(b []byte) {
	credit := c.out[wire.Stdout]
	n := credit.TakeUnless(func() bool { return true }, len(b))
	if n < len(b) {
		credit.Return(n)
		return
	}
	c.a.frame(wire.AppendData(nil, c.id, wire.Stdout, b))
}

// packetsIn sends what the host answers, until the channel ends.
func (c *channel) packetsIn(resolver *pollFile) {
	var part []byte
	for b := c.in.Next(); b != nil; b = c.in.Next() {
		part = append(part, b...)
		c.received()
		for {
			message, rest, whole, err := wire.CutPacket(part)
			if err != nil {
				return // our host does not do that
			}
			if part = rest; !whole {
				break
			}
			var p wire.Packet
			if wire.Decode(message, &p) == nil && p.Peer.Valid() {
				to := &unix.SockaddrInet4{Port: p.Peer.Port, Addr: [4]byte(p.Peer.IP)}
				_ = resolver.raw.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), p.Content, unix.MSG_DONTWAIT, to) }) // lost where there is no room
			}
		}
	}
}

// receive waits for a packet.
func (f *pollFile) receive(b []byte) (n int, from unix.Sockaddr, err error) {
	var failure error
	err = f.raw.Read(func(fd uintptr) bool {
		n, from, failure = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
		return failure != unix.EAGAIN && failure != unix.EINTR
	})
	if err == nil {
		err = failure
	}
	return n, from, err
}
