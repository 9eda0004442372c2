package fake

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"pinfold/internal/driver"
)

// doors are a machine's, on this machine's own loopback: there is no other network.
type doors struct {
	at    []net.Addr // of Plan.Doors
	asked chan []byte
	once  sync.Once
	over  chan struct{}
}

// TakeDoors implements driver.Doors.
func (m *Machine) TakeDoors() ([]net.Listener, driver.Packets, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doors != nil {
		return nil, nil, errors.New("fake: the doors were taken before")
	}
	m.doors = &doors{asked: make(chan []byte), over: make(chan struct{})}
	var all []net.Listener
	for range m.Plan.Doors {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
			return nil, nil, err
		}
		all = append(all, l)
		m.doors.at = append(m.doors.at, l.Addr())
	}
	return all, m.doors, nil
}

// AddDoors implements driver.LateDoors.
func (m *Machine) AddDoors(doors []driver.Door) ([]net.Listener, driver.Packets, error) {
	if m.script.AddDoors != nil {
		if err := m.script.AddDoors(); err != nil {
			return nil, nil, err
		}
	}
	m.mu.Lock()
	ended := m.ended
	m.Plan.Doors = doors
	m.mu.Unlock()
	if ended {
		return nil, nil, driver.ErrEnded
	}
	return m.TakeDoors()
}

// Connect connects to a name as a program inside does.
func (m *Machine) Connect(host string, port int) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range m.Plan.Doors {
		if m.doors != nil && d.Host == host && int(d.At.Port()) == port {
			return (&net.Dialer{}).DialContext(context.Background(), "tcp", m.doors.at[i].String())
		}
	}
	return nil, errors.New("fake: no such name")
}

// Ask sends the resolver a packet.
func (m *Machine) Ask(packet []byte) {
	m.mu.Lock()
	d := m.doors
	m.mu.Unlock()
	if d == nil {
		return
	}
	select {
	case d.asked <- packet:
	case <-d.over:
	}
}

// ReadFrom implements driver.Packets.
func (d *doors) ReadFrom(b []byte) (int, netip.AddrPort, error) {
	select {
	case packet := <-d.asked:
		return copy(b, packet), netip.MustParseAddrPort("127.0.0.1:1"), nil
	case <-d.over:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

// WriteTo implements driver.Packets.
func (d *doors) WriteTo([]byte, netip.AddrPort) error { return nil }

// Close implements driver.Packets.
func (d *doors) Close() error {
	d.once.Do(func() { close(d.over) })
	return nil
}
