package guest

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Doors are addresses inside at which the agent listens for the host. Which door a
// connection came through is known from where it was waited for; an agent that lies can do
// no more than connect to one of these, as any program inside can. The methods are safe for
// concurrent use, ReadFrom by one caller at a time.
type Doors struct {
	g        *Guest
	c        *channel
	all      []*Door
	places   chan struct{} // one for each connection that is open or waited for
	once     sync.Once
	incoming []byte // the stream's, not yet taken apart
}

// Door is one of them. It is a net.Listener; a connection has SetLinger and CloseWrite. At most
// wire.MaxAccepts connections of a sandbox are open or waited for at once, by the host's
// own count: one more waits inside.
type Door struct {
	doors *Doors
	index int
	at    netip.AddrPort
	open  context.Context // until Close
	close context.CancelFunc
}

// OpenDoors has the agent listen at addresses of the sandbox's loopback, of IPv4, and for
// packets at the resolver's. It is asked for once, before anything runs. When ctx ends
// afterwards nothing becomes of the doors.
func (g *Guest) OpenDoors(ctx context.Context, at []netip.AddrPort, resolver netip.AddrPort) (*Doors, error) {
	if len(at) > wire.MaxDoors {
		return nil, sandbox.Errorf(sandbox.CodeTooLarge, "%d doors are more than %d", len(at), wire.MaxDoors)
	}
	d := &Doors{g: g, places: make(chan struct{}, wire.MaxAccepts)}
	req := wire.DoorsRequest{Resolver: addressOf(resolver)}
	for i, a := range at {
		req.At = append(req.At, addressOf(a))
		d.all = append(d.all, newDoor(d, i, a))
	}
	use := &dialing{release: func() {}, opened: make(chan struct{})}
	c, err := g.open(ctx, wire.Request{Op: wire.OpDoors, Doors: &req}, use, shape{upload: true, downloads: 1, prompt: true})
	if err != nil {
		return nil, err
	}
	d.c = c
	c.answer.wait()
	select {
	case <-use.opened:
		c.answer.end() // later there may be nothing to tell
		return d, nil
	case <-c.over:
		if err := c.result(); err != nil {
			return nil, err
		}
		return nil, c.violated("doors that close without having been open")
	case <-ctx.Done():
		c.abandon()
		return nil, context.Cause(ctx)
	}
}

func newDoor(d *Doors, index int, at netip.AddrPort) *Door {
	l := &Door{doors: d, index: index, at: at}
	l.open, l.close = context.WithCancel(context.Background())
	return l
}

func addressOf(a netip.AddrPort) wire.Address {
	return wire.Address{IP: a.Addr().AsSlice(), Port: int(a.Port())}
}

// All are the doors, in the order in which they were asked for.
func (d *Doors) All() []*Door { return d.all }

// Accept waits for a program to connect. The error is net.ErrClosed after Close, and after
// the end of the sandbox's connection.
func (l *Door) Accept() (net.Conn, error) {
	d := l.doors
	select {
	case d.places <- struct{}{}:
	case <-l.open.Done():
		return nil, net.ErrClosed
	case <-d.g.done:
		return nil, net.ErrClosed
	}
	free := sync.OnceFunc(func() { <-d.places })
	use := &dialing{release: free, opened: make(chan struct{})}
	c, err := d.g.open(l.open, wire.Request{Op: wire.OpAccept, Accept: &wire.AcceptRequest{Door: l.index}}, use, shape{upload: true, downloads: 1})
	if err != nil {
		free()
		return nil, l.orClosed(err)
	}
	select {
	case <-use.opened:
		return newConn(c, use, int(l.at.Port())), nil
	case <-c.over:
		select {
		case <-use.opened: // and is over already
			return newConn(c, use, int(l.at.Port())), nil
		default:
		}
		return nil, l.orClosed(c.result())
	case <-l.open.Done():
		c.abandon()
		return nil, net.ErrClosed
	}
}

// orClosed is err, or that nothing comes any more.
func (l *Door) orClosed(err error) error {
	select {
	case <-l.open.Done():
	case <-l.doors.g.done:
	default:
		return err
	}
	return net.ErrClosed
}

// Close has nothing accepted any more. Programs still connect until Doors.Close.
func (l *Door) Close() error {
	l.close()
	return nil
}

// Addr is the door's address inside.
func (l *Door) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// ReadFrom returns the next packet that came to the resolver. from is what the sandbox
// says, and of no use but for WriteTo.
func (d *Doors) ReadFrom(b []byte) (n int, from netip.AddrPort, err error) {
	for {
		message, rest, whole, err := wire.CutPacket(d.incoming)
		if err != nil {
			d.g.end(gone(err))
			return 0, from, net.ErrClosed
		}
		if whole {
			p, err := packet(message)
			if err != nil {
				d.g.end(gone(err))
				return 0, from, net.ErrClosed
			}
			d.incoming = rest
			return copy(b, p.Content), netip.AddrPortFrom(netip.AddrFrom4([4]byte(p.Peer.IP)), uint16(p.Peer.Port)), nil //nolint:gosec // Valid
		}
		more := d.c.download[wire.Stdout].Next()
		if more == nil {
			return 0, from, net.ErrClosed
		}
		d.incoming = append(bytes.Clone(rest), more...)
		d.c.received(wire.Stdout)
	}
}

// packet reads one, of which every part is the guest's word.
func packet(message []byte) (p wire.Packet, err error) {
	if err := wire.Decode(message, &p); err != nil {
		return p, err
	}
	if !p.Peer.Valid() || len(p.Content) > wire.MaxPacketContent {
		return p, broken("a packet that cannot be")
	}
	return p, nil
}

// WriteTo answers one packet. It does not wait: where the sandbox takes no more, the answer
// is dropped.
func (d *Doors) WriteTo(b []byte, to netip.AddrPort) error {
	p := wire.AppendPacket(nil, &wire.Packet{Peer: addressOf(to), Content: b[:min(len(b), wire.MaxPacketContent)]})
	now := func() bool { return true }
	n := d.c.upload.TakeUnless(now, len(p))
	if n < len(p) || !d.g.out.addUnless(now, func(b []byte) []byte { return wire.AppendData(b, d.c.id, wire.Stdin, p) }) {
		d.c.upload.Return(n)
	}
	return nil
}

// Close closes all doors. Connections that are open go on.
func (d *Doors) Close() error {
	d.once.Do(func() {
		for _, l := range d.all {
			_ = l.Close()
		}
		select {
		case <-d.c.over:
		default:
			d.c.abandon()
		}
	})
	return nil
}
