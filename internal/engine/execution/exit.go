package execution

import (
	"context"
	"net"
	"net/netip"

	"pinfold/internal/driver"
	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// OpenDoors lets out what the plan declares, before anything runs. After an error the
// machine has no way out, and is to be closed. host is what all machines share, and m
// what it takes for this machine's requests, whose authority's certificate the plan has.
func (s *Session) OpenDoors(ctx context.Context, host *egress.Host, m egress.Means) error {
	if len(s.Plan.Doors) == 0 {
		return nil
	}
	listeners, resolver, err := s.takeDoors(ctx)
	if err != nil {
		return err
	}
	return s.letOut(host, m, listeners, resolver)
}

// AddDoors has a machine that was made without doors let out what another plan declares, as
// OpenDoors does. It can where the machine has LateDoors and the plan no authority, and is
// for who holds the session alone: its plan changes.
func (s *Session) AddDoors(host *egress.Host, m egress.Means, declaring driver.Plan) error {
	listeners, resolver, err := s.Machine.Abilities().LateDoors.AddDoors(declaring.Doors)
	if err != nil {
		return err
	}
	s.Plan = s.Plan.Reaching(declaring)
	return s.letOut(host, m, listeners, resolver)
}

// letOut lets out what the plan declares, through its doors' listeners.
func (s *Session) letOut(host *egress.Host, m egress.Means, listeners []net.Listener, resolver egress.Packets) error {
	doors := make([]egress.Door, len(listeners))
	for i, l := range listeners {
		d := s.Plan.Doors[i]
		doors[i] = egress.Door{Listener: l, Host: d.Host, Port: int(d.At.Port()), At: d.At.Addr(), Proxy: egress.Proxy(d.Proxy)}
	}
	relay, err := egress.Open(host, s.Plan.Network, m, doors, resolver)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.relay = relay
	s.mu.Unlock()
	return nil
}

// takeDoors returns the listeners of the plan's doors, in their order, and the resolver's
// socket: those of the machine's driver, or else those that its agent opens now.
func (s *Session) takeDoors(ctx context.Context) ([]net.Listener, egress.Packets, error) {
	switch can := s.Machine.Abilities(); {
	case can.Doors != nil:
		return can.Doors.TakeDoors()
	case !can.AgentDoors:
		return nil, nil, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the sandbox has no listeners for the declared endpoints"}
	}
	agent, err := s.Agent(ctx)
	if err != nil {
		return nil, nil, err
	}
	var at []netip.AddrPort
	for _, d := range s.Plan.Doors {
		at = append(at, d.At)
	}
	opened, err := agent.OpenDoors(ctx, at, driver.Resolver)
	if err != nil {
		return nil, nil, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the sandbox's agent cannot listen for the declared endpoints: " + sandbox.AsError(err).Message, Err: err}
	}
	var listeners []net.Listener
	for _, d := range opened.All() {
		listeners = append(listeners, d)
	}
	return listeners, opened, nil
}

// Network is what has gone on with the declared endpoints; nil where none were.
func (s *Session) Network() *sandbox.NetworkUse {
	relay := s.Relay()
	if relay == nil {
		return nil
	}
	return relay.Use()
}

// Relay is the machine's way out, or nil where it has none.
func (s *Session) Relay() *egress.Relay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relay
}

// Shut ends all connections to the declared endpoints, and lets no more through.
func (s *Session) Shut() {
	if relay := s.Relay(); relay != nil {
		relay.Close()
	}
}
