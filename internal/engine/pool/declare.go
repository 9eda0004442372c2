package pool

import (
	"context"

	"pinfold/internal/egress"
	"pinfold/sandbox"
)

// Declare says whether a tenant's machine can have another declaration, which was admitted,
// and returns what has it hold, at once.
func (s *Pools) Declare(ctx context.Context, m *Machine, tenant string, n sandbox.Network) (begin func(), err error) {
	relay := m.Relay()
	switch {
	case relay != nil:
		return relay.Prepare(ctx, n, tenant, s.secrets)
	case n.None():
		return func() {}, nil
	}
	return nil, egress.NoDoor(n.Endpoints[0].Host, n.Endpoints[0].Ports[0], "network.endpoints[0].host")
}
