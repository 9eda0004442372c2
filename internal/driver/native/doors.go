//go:build linux

package native

import (
	"errors"
	"net"

	"pinfold/internal/driver"
	"pinfold/internal/linux/netdoor"
	"pinfold/internal/linux/spawn"
)

// # Doors
//
// A sandbox that may reach something still has a network namespace with loopback alone.
// For each declared name and port there is a listening socket in it, made before anything
// runs, and the descriptor is ours alone: nothing inside holds it, and what is connected
// to there we accept. A resolver's socket is made in the same way.

// openDoors makes the sockets, in the sandbox's network namespace.
func (n *initSpec) openDoors(p *spawn.Program) {
	if len(n.doors) == 0 {
		return
	}
	for _, d := range n.doors {
		n.opened = append(n.opened, netdoor.TCP(p, d.At))
	}
	n.opened = append(n.opened, netdoor.UDP(p, driver.Resolver))
}

// doorCount is how many descriptors of doors the sandbox's first process sends.
func (m *machine) doorCount() int {
	if len(m.plan.Doors) == 0 || m.host.agentDoors {
		return 0
	}
	return len(m.plan.Doors) + 1
}

// TakeDoors implements driver.Doors.
func (m *machine) TakeDoors() ([]net.Listener, driver.Packets, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.doors) != m.doorCount() || len(m.doors) == 0 {
		return nil, nil, errors.New("native: the doors were taken before, or the machine has none")
	}
	last := len(m.doors) - 1
	var listeners []net.Listener
	for _, fd := range m.doors[:last] {
		listeners = append(listeners, netdoor.NewListener(fd))
	}
	resolver := netdoor.NewPackets(m.doors[last])
	m.doors = nil
	return listeners, resolver, nil
}

// closeDoors closes what nobody has taken. The lock is held.
func (m *machine) closeDoors() {
	closeAll(m.doors)
	m.doors = nil
}
