package guest

import (
	"context"
	"math"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// State is what the host knows of an agent's connection while nothing travels on it, and of
// the one process that was started by it: enough to speak to a copy of the agent, in a
// copy of its machine.
type State struct {
	Build   string // of the agent
	Last    uint32 // the last channel
	Channel uint32 // the process's
	PID     int
}

// State returns what a copy of the process is gone on with by. Its stdin has been sent
// nothing. All that was sent to the agent has arrived by then, and all that it said.
// The path is of any directory in the sandbox.
func (p *Process) State(ctx context.Context, path string) (State, error) {
	g := p.c.g
	if _, err := g.Stat(ctx, path); err != nil { // the answer comes after all that was before
		return State{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err != nil:
		return State{}, g.err
	case len(g.channels) != 1 || g.channels[p.c.id] != p.c || g.last == math.MaxUint32:
		return State{}, sandbox.Errorf(sandbox.CodeConflict, "something else goes on in the sandbox")
	}
	return State{Build: g.build, Last: g.last, Channel: p.c.id, PID: p.pid}, nil
}

// Copied takes over the connection to a copy of an agent, and the copy of the process.
// The streams are as for Start; Stdin must not be nil.
func Copied(conn Link, hello wire.Hello, of State, s Streams) (*Guest, *Process) {
	g := newGuest(conn, hello)
	g.build, g.last = of.Build, of.Last
	p := newProcess(Command{})
	p.pid, p.state = of.PID, 1
	close(p.started)
	p.c = g.newChannel(p, shape{upload: true, downloads: 2, arrived: s.Arrived}, wire.OpStart)
	p.c.id = of.Channel
	g.channels[of.Channel] = p.c
	g.reading.Go(func() { g.read(g.frames) })
	p.carryOutput(s)
	p.carryInput(s)
	return g, p
}
