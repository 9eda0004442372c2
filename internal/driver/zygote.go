package driver

import (
	"context"

	"pinfold/internal/zygote"
)

// Zygoter is a driver that can fork machines' first programs from a process that
// has loaded everything already. Package zygote describes zygotes.
type Zygoter interface {
	// NewZygote starts a zygote in a machine of its own: the plan's limits, no
	// network, no privilege on the host, an id that nobody else has. It returns
	// when the zygote has loaded what it was told. It fails with errors.ErrUnsupported
	// where this host cannot do it, and with a *zygote.UnfitError when the zygote
	// says that it cannot be forked.
	NewZygote(ctx context.Context, plan Plan, spec zygote.Spec) (Zygote, error)
}

// Zygote is a process from which others are forked. It runs no run's code. All methods
// are safe for concurrent use.
type Zygote interface {
	// Fork makes the machine that the plan describes, with everything that it
	// enforces in force, and a child of the zygote in it, which waits for its
	// program on its standard input. The machine may have an InitStub.
	Fork(ctx context.Context, plan Plan) (Machine, *zygote.Child, error)
	// Dead is closed when the zygote has ended. Its machines have ended with it.
	Dead() <-chan struct{}
	// Usage reads the counters of the zygote alone. It fails as a machine's does.
	Usage(ctx context.Context) (Usage, error)
	// Destroy ends the zygote and all machines that still live with a child of
	// it, and removes its traces. The machines must be destroyed too.
	Destroy(ctx context.Context) error
}
