package driver

import "context"

// Copier is a driver that can make machines as copies of one that it has made, with all
// that goes on in it: processes, memory, files, and the agent's end of its connection.
type Copier interface {
	// CreateOriginal makes the machine that the plan describes, as Create does, to be
	// copied.
	CreateOriginal(ctx context.Context, plan Plan) (Original, error)
}

// Original is a machine that is to be copied.
type Original interface {
	Machine
	// Keep ends the machine and keeps what it was at this moment. Nothing may be under way
	// on its connection. After an error the machine is to be destroyed.
	Keep(ctx context.Context) (Kept, error)
}

// Kept is what machines are copied from. It is safe for concurrent use.
type Kept interface {
	// Copy makes the machine that the plan describes, which differs from the original's in
	// nothing but its ID. When it returns, what the machine must not share with other copies
	// is its own: the kernel's random numbers, the clock, its ids. What a process in there has
	// drawn before, it keeps. Dial returns the connection to the copy of the agent as the
	// original's was. It fails with code conflict when what is kept is of no use any
	// more: another host's program, another template.
	Copy(ctx context.Context, plan Plan) (Machine, error)
	// Close lets go of it. Copies live on.
	Close() error
}
