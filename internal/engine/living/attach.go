package living

import (
	"context"

	"pinfold/internal/engine/stdio"
	"pinfold/sandbox"
)

// StartAttached is Start with readers of both streams that are there before the
// first byte: however fast the command prints, they see all of it, or, where a gate holds
// it back, what that lets out of what is kept at the end. The caller closes them.
func (s *Sandbox) StartAttached(ctx context.Context, c sandbox.Command) (p *Process, stdout, stderr *stdio.Reader, err error) {
	p, outs, err := s.launch(ctx, c, launching{attach: true})
	if err != nil {
		return nil, nil, nil, err
	}
	return p, outs[0], outs[1], nil
}

// StartFollowed is StartAttached with one reader of both streams, in their order.
func (s *Sandbox) StartFollowed(ctx context.Context, c sandbox.Command) (*Process, *stdio.Follower, error) {
	p, stdout, stderr, err := s.StartAttached(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return p, p.shown.Follow(stdout, stderr), nil
}
