package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

var hostileDoors = []netip.AddrPort{netip.MustParseAddrPort("127.66.0.2:443"), netip.MustParseAddrPort("127.66.0.3:443")}

// hostileOpen opens doors with an agent that does what the test says after that. The
// channel of the doors has number 1, what is accepted begins with 2.
func hostileOpen(t *testing.T) (*guest.Guest, *peer, *guest.Doors) {
	t.Helper()
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		p.send(event(opened))
	}()
	d, err := g.OpenDoors(deadline(t), hostileDoors, netip.MustParseAddrPort("127.66.0.1:53"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return g, p, d
}

func packets(all ...wire.Packet) []byte {
	var b []byte
	for _, p := range all {
		b = wire.AppendPacket(b, &p)
	}
	return wire.AppendData(nil, 1, wire.Stdout, b)
}

var program = wire.Address{IP: []byte{127, 0, 0, 1}, Port: 40000}

// Each attack is what an agent sends once the doors are open and one is waited at. All of
// them must end the connection with a violation.
func TestDoorViolations(t *testing.T) {
	on := func(channel uint32) []byte { return message(wire.KindEvent, channel, opened) }
	for name, attack := range map[string][]byte{
		"opened twice":                  event(opened),
		"another event":                 event(started),
		"a channel nobody asked for":    on(3),
		"data of a channel of its own":  wire.AppendData(nil, 9, 1, []byte("x")),
		"accepted twice":                join(on(2), on(2)),
		"accepted and failed":           join(on(2), message(wire.KindClose, 2, `{"error":{"code":"port_closed","message":"x"}}`)),
		"over without being accepted":   message(wire.KindClose, 2, `{}`),
		"an error stream":               join(on(2), wire.AppendData(nil, 2, 2, []byte("x"))),
		"a window too large":            join(on(2), wire.AppendWindow(nil, 2, 0, 1)),
		"data after its end":            join(on(2), wire.AppendEOF(nil, 2, 1), wire.AppendData(nil, 2, 1, []byte("x"))),
		"more than the window":          append(on(2), bytes.Repeat(wire.AppendData(nil, 2, 1, make([]byte, 32<<10)), 3)...),
		"a packet too long":             wire.AppendData(nil, 1, 1, []byte{0xff, 0xff}),
		"a packet of nothing":           wire.AppendData(nil, 1, 1, []byte{0, 0}),
		"a packet of the longest kind":  packets(wire.Packet{Peer: program, Content: make([]byte, wire.MaxPacketContent+1)}),
		"a packet from nowhere":         packets(wire.Packet{Peer: wire.Address{Port: 1}, Content: []byte("x")}),
		"a packet from another network": packets(wire.Packet{Peer: wire.Address{IP: []byte{10, 0, 0, 1}, Port: 1}, Content: []byte("x")}),
		"a packet from no port":         packets(wire.Packet{Peer: wire.Address{IP: program.IP, Port: 1 << 16}, Content: []byte("x")}),
	} {
		t.Run(name, func(t *testing.T) {
			g, p, d := hostileOpen(t)
			accepted := make(chan error, 1)
			go func() {
				_, err := d.All()[0].Accept()
				accepted <- err
			}()
			p.await(wire.KindOpen)
			go func() {
				for {
					if _, _, err := d.ReadFrom(make([]byte, wire.MaxPacketContent)); err != nil {
						return
					}
				}
			}()
			p.send(attack)
			select {
			case <-g.Done():
			case <-deadline(t).Done():
				t.Fatal("the connection goes on")
			}
			var v *wire.Violation
			if !errors.As(g.Err(), &v) {
				t.Errorf("%v, want a violation", g.Err())
			}
			if err := <-accepted; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept: %v", err)
			}
		})
	}
}

// What a good agent would send passes, so that the test above proves something.
func TestDoorsWellBehaved(t *testing.T) {
	_, p, d := hostileOpen(t)
	go func() {
		f := p.await(wire.KindOpen)
		p.send(join(message(wire.KindEvent, f.Channel, opened), wire.AppendData(nil, f.Channel, 1, make([]byte, wire.DoorWindowSize-1)), wire.AppendEOF(nil, f.Channel, 1)))
		p.send(packets(wire.Packet{Peer: program, Content: []byte("question")}))
	}()
	c, err := d.All()[1].Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || len(got) != wire.DoorWindowSize-1 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = c.Close()
	b := make([]byte, wire.MaxPacketContent)
	n, from, err := d.ReadFrom(b)
	if err != nil || string(b[:n]) != "question" || from.Port() != 40000 {
		t.Errorf("%q from %v, %v", b[:n], from, err)
	}
}

// Which door it was the host knows by itself: whatever an agent does, what is accepted at
// one was asked for there.
func TestDoorIsTheHosts(t *testing.T) {
	_, p, d := hostileOpen(t)
	for i, door := range d.All() {
		go func() {
			f := p.await(wire.KindOpen)
			var req wire.Request
			if err := wire.Decode(f.Payload, &req); err != nil || req.Op != wire.OpAccept || req.Accept.Door != i {
				t.Errorf("%+v, %v", req, err)
			}
			p.send(message(wire.KindEvent, f.Channel, opened))
		}()
		c, err := door.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.(*guest.Conn).SetLinger(0)
		_ = c.Close()
		p.await(wire.KindClose)
	}
}

// However many programs an agent says have connected, the host counts for itself; it does
// not ask for one more, and what is over makes room.
func TestAcceptsAreCounted(t *testing.T) {
	_, p, d := hostileOpen(t)
	door := d.All()[0]
	asked := make(chan uint32, wire.MaxAccepts+1)
	go func() {
		for {
			f, err := p.frames.Next()
			if err != nil {
				return
			}
			if f.Kind == wire.KindOpen {
				p.send(message(wire.KindEvent, f.Channel, opened))
				asked <- f.Channel
			}
		}
	}()
	var all []net.Conn
	for range wire.MaxAccepts {
		c, err := door.Accept()
		if err != nil {
			t.Fatalf("connection %d: %v", len(all), err)
		}
		all = append(all, c)
		<-asked
	}
	more := make(chan net.Conn)
	go func() {
		c, _ := door.Accept()
		more <- c
	}()
	select {
	case n := <-asked:
		t.Fatalf("channel %d was asked for beyond the bound", n)
	case <-time.After(50 * time.Millisecond): // that it does not ask later shows the next step: it got its place there
	}
	_ = all[0].Close()
	p.send(join(wire.AppendEOF(nil, 2, 1), message(wire.KindClose, 2, `{}`)))
	<-asked
	for _, c := range append(all[1:], <-more) {
		_ = c.(*guest.Conn).SetLinger(0)
		_ = c.Close()
	}
}

// An agent that does not read what programs are sent costs the host the windows of as many
// connections as there may be, and no more: the connection of the sandbox goes on, which an
// overflow would end.
func TestDoorsOfADeafAgent(t *testing.T) {
	g, p, d := hostileOpen(t)
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	go func() {
		for range wire.MaxAccepts {
			f := p.await(wire.KindOpen)
			p.send(message(wire.KindEvent, f.Channel, opened))
		}
	}()
	var all []net.Conn
	for range wire.MaxAccepts {
		c, err := d.All()[0].Accept()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	sent := 0
	for _, c := range all {
		_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
		n, err := c.Write(make([]byte, 1<<20))
		if err == nil {
			t.Fatal("a megabyte was taken that nobody read")
		}
		sent += n
	}
	if sent > wire.MaxAccepts*wire.DoorWindowSize {
		t.Errorf("%d bytes were taken", sent)
	}
	for range 10_000 { // answers are dropped, and wait for nobody
		if err := d.WriteTo(make([]byte, 100), netip.MustParseAddrPort("127.0.0.1:40000")); err != nil {
			t.Fatal(err)
		}
	}
	if ctx.Err() != nil || g.Err() != nil {
		t.Errorf("%v, %v", ctx.Err(), g.Err())
	}
	for _, c := range all {
		_ = c.(*guest.Conn).SetLinger(0)
		_ = c.Close()
	}
}

// Doors that do not open in time, or not at all, are none.
func TestDoorsFail(t *testing.T) {
	for name, answer := range map[string][]byte{"refused": closing(`{"error":{"code":"resource_unavailable","message":"x"}}`), "over at once": closing(`{}`)} {
		t.Run(name, func(t *testing.T) {
			g, p := newPeer(t)
			go func() {
				p.await(wire.KindOpen)
				p.send(answer)
			}()
			if d, err := g.OpenDoors(deadline(t), hostileDoors, netip.MustParseAddrPort("127.66.0.1:53")); err == nil || d != nil {
				t.Errorf("%v, %v", d, err)
			}
		})
	}
	g, _ := newPeer(t)
	if _, err := g.OpenDoors(t.Context(), make([]netip.AddrPort, wire.MaxDoors+1), netip.AddrPort{}); code(err) != sandbox.CodeTooLarge {
		t.Errorf("too many: %v", err)
	}
}
