package execution

import (
	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// OpenDoors lets out what the plan declares, before anything runs. After an error the
// machine has no way out, and is to be closed. host is what all machines share, and m
// what it takes for this machine's requests, whose authority's certificate the plan has.
func (s *Session) OpenDoors(host *egress.Host, m egress.Means) error {
	if len(s.Plan.Doors) == 0 {
		return nil
	}
	behind := s.Machine.Abilities().Doors
	if behind == nil {
		return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the sandbox has no listeners for the declared endpoints"}
	}
	listeners, resolver, err := behind.TakeDoors()
	if err != nil {
		return err
	}
	doors := make([]egress.Door, len(listeners))
	for i, l := range listeners {
		d := s.Plan.Doors[i]
		doors[i] = egress.Door{Listener: l, Host: d.Host, Port: int(d.At.Port()), At: d.At.Addr()}
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

// Network is what has gone on with the declared endpoints; nil where none were.
func (s *Session) Network() *sandbox.NetworkUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return nil
	}
	return s.relay.Use()
}

// shut ends all connections to the declared endpoints.
func (s *Session) shut() {
	s.mu.Lock()
	relay := s.relay
	s.mu.Unlock()
	if relay != nil {
		relay.Close()
	}
}
