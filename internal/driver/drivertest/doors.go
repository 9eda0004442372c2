//go:build linux

package drivertest

import (
	"net"
	"strings"
	"time"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// doorTests are about doors that a machine is given after it was made.
var doorTests = []test{
	{"are added late", (*harness).testLateDoors},
	{"one is taken", (*harness).testLateDoorIsTaken},
	{"the machine has ended", (*harness).testLateDoorsEnded},
}

// lateDoors returns a machine without doors, or nil where this driver's cannot have some
// later, the doors that it is to have, and one that it is not.
func (h *harness) lateDoors() (b *box, doors []driver.Door, another string) {
	h.Helper()
	b = h.box(sandbox.Limits{})
	if can := h.driver.Abilities().LateDoors; can != (b.Abilities().LateDoors != nil) {
		h.Fatalf("the driver says %v, its machine has %v", can, b.Abilities().LateDoors)
	} else if !can {
		return nil, nil, ""
	}
	spec := sandbox.Spec{Code: "x", Driver: h.driver.Name(), Network: sandbox.Network{Endpoints: []sandbox.Endpoint{
		{Host: "late.test", Ports: []int{8080, 8443}, Address: "127.0.0.1"},
	}}}.WithDefaults()
	p, err := driver.MakePlan(spec.Machine(), h.shown, h.report, b.plan.ID)
	if err != nil {
		h.Fatalf("MakePlan: %v", err)
	}
	return b, p.Doors, net.JoinHostPort(p.Doors[0].At.Addr().String(), "8081")
}

// testLateDoors: what is connected to inside is accepted outside, at each door and nowhere
// else, programs find the name, and on the host there is nothing.
func (h *harness) testLateDoors() {
	b, doors, another := h.lateDoors()
	if b == nil {
		return
	}
	listeners, resolver, err := b.Abilities().LateDoors.AddDoors(doors)
	if err != nil {
		h.Fatalf("AddDoors: %v", err)
	}
	h.Cleanup(func() {
		for _, l := range listeners {
			_ = l.Close()
		}
		_ = resolver.Close()
	})
	if len(listeners) != len(doors) {
		h.Fatalf("%d listeners for %d doors", len(listeners), len(doors))
	}
	if !h.o.Kernel {
		return
	}
	probe := h.probe(b)
	if _, err := net.DialTimeout("tcp", doors[0].At.String(), time.Second); err == nil {
		h.Errorf("%s can be reached on the host", doors[0].At)
	}
	for i, d := range doors {
		accepted := make(chan error, 1)
		go func() {
			c, err := listeners[i].Accept()
			if err == nil {
				err = c.Close()
			}
			accepted <- err
		}()
		args := []string{"dial", "tcp", d.At.String()}
		if d.Host == "late.test" {
			args[2] = net.JoinHostPort(d.Host, args[2][strings.LastIndexByte(args[2], ':')+1:])
		}
		var found map[string]string
		probe.ask(&found, args...)
		if found[args[2]] != "ok" {
			h.Fatalf("%v", found)
		}
		if err := <-accepted; err != nil {
			h.Errorf("%s: %v", args[2], err)
		}
	}
	var found map[string]string
	probe.ask(&found, "dial", "tcp", another)
	if found[another] == "ok" {
		h.Errorf("%s is a door that nobody has declared", another)
	}
}

// testLateDoorIsTaken: where something inside listens already, nothing is said to be a door.
func (h *harness) testLateDoorIsTaken() {
	b, doors, _ := h.lateDoors()
	if b == nil || !h.o.Kernel {
		return
	}
	var port int
	h.probe(b).hold(&port, "serve", doors[0].At.String())
	if _, _, err := b.Abilities().LateDoors.AddDoors(doors); err == nil || !strings.Contains(err.Error(), doors[0].At.String()) {
		h.Errorf("AddDoors: %v", err)
	}
}

// testLateDoorsEnded: a machine that has ended has none.
func (h *harness) testLateDoorsEnded() {
	b, doors, _ := h.lateDoors()
	if b == nil {
		return
	}
	h.destroy(b.Machine)
	if _, _, err := b.Abilities().LateDoors.AddDoors(doors); err == nil {
		h.Error("a machine that is gone has doors")
	}
}
