package execution

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/egress"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// agentDoors is a machine whose agent opens doors, as a script in its place says.
type agentDoors struct {
	driver.Machine

	t     *testing.T
	able  bool                                                     // as the driver says
	serve func(frames *wire.Reader, send func([]byte)) (why error) // after hello
	going sync.WaitGroup
}

func (m *agentDoors) Abilities() driver.MachineAbilities {
	return driver.MachineAbilities{AgentDoors: m.able}
}

func (m *agentDoors) Destroy(context.Context) error { return nil }

func (m *agentDoors) Dial(context.Context) (driver.Conn, error) {
	ours, theirs := net.Pipe()
	var one sync.Mutex
	send := func(b []byte) {
		one.Lock()
		defer one.Unlock()
		_, _ = theirs.Write(b)
	}
	m.going.Go(func() {
		defer theirs.Close()
		send(wire.AppendMessage(nil, wire.KindHello, 0, &wire.Hello{Version: wire.Version}))
		frames := wire.NewReader(theirs, wire.Host)
		_, err := frames.Next()
		if err == nil {
			err = m.serve(frames, send)
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
			m.t.Error(err)
		}
	})
	return ours, nil
}

// session is one of a machine with two doors, at echo.test, which lead to a server that
// says everything again.
func (m *agentDoors) session(t *testing.T) (*Session, egress.Means) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	n, err := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "echo.test", Ports: []int{port, 1}, Address: "127.0.0.1"}}}.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	means, err := egress.NewMeans(t.Context(), n, "team", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.t = t
	s := &Session{Machine: m, Plan: driver.Plan{Network: n, Doors: []driver.Door{
		{Host: "echo.test", At: netip.MustParseAddrPort("127.66.0.2:1")},
		{Host: "echo.test", At: netip.AddrPortFrom(netip.MustParseAddr("127.66.0.2"), uint16(port))}, //nolint:gosec // a port
	}}}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		m.going.Wait()
	})
	return s, means
}

// The doors of a machine whose agent opens them lead where those of other machines do, by
// the same relay: what is accepted at a door goes to that door's server, a name that was
// not declared is written down.
func TestDoorsByTheAgent(t *testing.T) {
	answers := make(chan string, 2)
	var doors wire.DoorsRequest
	var connected bool
	m := &agentDoors{able: true, serve: func(frames *wire.Reader, send func([]byte)) error {
		for {
			f, err := frames.Next()
			if err != nil {
				return err
			}
			var req wire.Request
			switch f.Kind {
			case wire.KindOpen:
				if err := wire.Decode(f.Payload, &req); err != nil {
					return err
				}
			case wire.KindData:
				_, content, err := f.Stream()
				if err != nil {
					return err
				}
				answers <- string(content)
			case wire.KindClose:
				go send(wire.AppendMessage(nil, wire.KindClose, f.Channel, &wire.Outcome{}))
			}
			switch {
			case req.Op == wire.OpDoors:
				doors = *req.Doors
				question := append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "\x05other\x04test\x00\x00\x01\x00\x01"...)
				packet := wire.AppendPacket(nil, &wire.Packet{Peer: wire.Address{IP: []byte{127, 0, 0, 1}, Port: 9}, Content: question})
				go send(append(wire.AppendMessage(nil, wire.KindEvent, f.Channel, &wire.Event{Kind: wire.EventOpened}), wire.AppendData(nil, f.Channel, wire.Stdout, packet)...))
			case req.Op == wire.OpAccept && req.Accept.Door == 1 && !connected:
				connected = true
				go send(append(wire.AppendMessage(nil, wire.KindEvent, f.Channel, &wire.Event{Kind: wire.EventOpened}), wire.AppendData(nil, f.Channel, wire.Stdout, []byte("\x00hello"))...))
			}
		}
	}}
	s, means := m.session(t)
	if err := s.OpenDoors(t.Context(), egress.NewHost(100), means); err != nil {
		t.Fatal(err)
	}
	echoed, refused := false, false
	for !echoed || !refused {
		select {
		case a := <-answers:
			if a == "\x00hello" {
				echoed = true
			} else if len(a) > 20 {
				var p wire.Packet
				if err := wire.Decode([]byte(a[2:]), &p); err != nil || p.Peer.Port != 9 || binary.BigEndian.Uint16(p.Content[2:])&0xf != 3 {
					t.Fatalf("%q, %v", a, err)
				}
				refused = true
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("echoed %v, refused %v", echoed, refused)
		}
	}
	if len(doors.At) != 2 || doors.At[0].Port != 1 || doors.Resolver.Port != 53 {
		t.Errorf("%+v", doors)
	}
	u := s.Network()
	if e := u.Endpoints[0]; e.Connections < 1 || e.BytesDown < 6 {
		t.Errorf("%+v", e)
	}
	if d := u.Denied; len(d) != 1 || d[0].Host != "other.test" || d[0].Reason != sandbox.DeniedUndeclared {
		t.Errorf("%+v", d)
	}
}

// Where the agent does not open them, or no driver says that it could, there is no sandbox.
func TestDoorsThatDoNotOpen(t *testing.T) {
	refuses := func(frames *wire.Reader, send func([]byte)) error {
		f, err := frames.Next()
		if err == nil {
			send(wire.AppendMessage(nil, wire.KindClose, f.Channel, &wire.Outcome{Error: &wire.Fault{Code: sandbox.CodeResourceUnavailable, Message: "no"}}))
			_, err = frames.Next()
		}
		return err
	}
	for _, able := range []bool{true, false} {
		m := &agentDoors{able: able, serve: refuses}
		s, means := m.session(t)
		if err := s.OpenDoors(t.Context(), egress.NewHost(100), means); sandbox.AsError(err).Code != sandbox.CodeSetupFailed {
			t.Errorf("%v: %v", able, err)
		}
		if s.Network() != nil {
			t.Error("it has a way out")
		}
	}
}
