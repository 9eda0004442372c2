//go:build linux

package native

import (
	"errors"
	"net"
	"os"

	"pinfold/internal/driver"
	"pinfold/internal/linux/netdoor"
	"pinfold/internal/linux/spawn"
)

// # Doors
//
// A sandbox that may reach something still has a network namespace with loopback alone.
// For each declared name and port there is a listening socket in it, made before anything
// runs, and the descriptor is ours alone: nothing inside holds it, and what is connected
// to there we accept. A resolver's socket is made in the same way. Root can make them later
// as well, in a machine that has waited: then no declaration needs a pool of its own.

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
	fds := m.doors
	m.doors = nil
	listeners, resolver := served(fds)
	return listeners, resolver, nil
}

// lateDoors says whether machines can be given doors: where these are not the agent's, and a
// thread of ours may go into their network namespaces and come back, which is root's.
func lateDoors(agentDoors bool) bool {
	return !agentDoors && os.Geteuid() == 0 && spawn.CanVisit()
}

// AddDoors implements driver.LateDoors. Nobody's program runs yet that could find a name
// before its door. Sockets are made in the sandbox's namespace by a thread of ours that goes
// there, which root alone may.
func (m *machine) AddDoors(doors []driver.Door) ([]net.Listener, driver.Packets, error) {
	plan := m.plan
	plan.Doors = doors
	if err := m.meter.replace(plan.Template.NameFiles(plan.Names(), driver.Resolver.Addr())); err != nil {
		return nil, nil, setupError("write the declared names", err)
	}
	fds, err := m.listen(doors)
	if err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	listeners, resolver := served(fds)
	return listeners, resolver, nil
}

// listen makes the sockets of doors, and of the resolver, in the sandbox's namespace. It
// returns what it has made, also with an error.
func (m *machine) listen(doors []driver.Door) (fds []int, err error) {
	err = m.child.InNetwork(func() error {
		for _, d := range doors {
			fd, err := netdoor.OpenTCP(d.At)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
		}
		fd, err := netdoor.OpenUDP(driver.Resolver)
		if err == nil {
			fds = append(fds, fd)
		}
		return err
	})
	if err != nil {
		err = setupError("listen for the declared endpoints", err)
	}
	return fds, err
}

// served takes over the descriptors of doors, and of the resolver's socket behind them.
func served(fds []int) (listeners []net.Listener, resolver driver.Packets) {
	last := len(fds) - 1
	for _, fd := range fds[:last] {
		listeners = append(listeners, netdoor.NewListener(fd))
	}
	return listeners, netdoor.NewPackets(fds[last])
}

// closeDoors closes what nobody has taken. The lock is held.
func (m *machine) closeDoors() {
	closeAll(m.doors)
	m.doors = nil
}
