package pool

import (
	"context"
	"errors"
	"sync"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/guest"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

// copies are machines with a waiting interpreter in each, which are copies of one that was
// kept. They take the place of a zygote's children where the driver copies machines.
type copies struct {
	kept  driver.Kept
	state guest.State
	dead  chan struct{}
	once  sync.Once
}

// copied is a copy, with the connection to its agent and its interpreter.
type copied struct {
	driver.Machine
	guest       *guest.Guest
	interpreter *warm.Interpreter
}

// startCopies makes the machine that a pool's are copied from. The error is a
// *zygote.UnfitError where there can be none.
func (s *Pools) startCopies(ctx context.Context, d driver.Driver, spec sandbox.PoolSpec) (driver.Zygote, error) {
	plan, err := s.planner.PlanOn(ctx, d, spec.Machine(), records.NewID(""))
	if err != nil {
		return nil, err
	}
	o, err := d.Abilities().Copier.CreateOriginal(ctx, plan)
	if err != nil {
		return nil, err
	}
	m := execution.Ungreeted(o, plan, nil)
	i, err := s.startInterpreter(ctx, m, spec, language.Language.CopiedStep)
	c := &copies{dead: make(chan struct{})}
	if err == nil {
		c.state, err = i.State(ctx, plan.User.Home)
	}
	if err == nil {
		c.kept, err = o.Keep(ctx)
	}
	if err = errors.Join(err, m.Close(ctx)); err != nil {
		return nil, err
	}
	return c, nil
}

// Fork implements driver.Zygote: it copies the machine.
func (c *copies) Fork(ctx context.Context, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	m, err := c.kept.Copy(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	conn, err := m.Dial(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, m.Destroy(context.WithoutCancel(ctx)))
	}
	g, i := warm.Copied(conn, execution.Hello(plan), c.state)
	return &copied{m, g, i}, nil, nil
}

// Dead implements driver.Zygote. What is kept does not end by itself.
func (c *copies) Dead() <-chan struct{} { return c.dead }

// Usage implements driver.Zygote. Nothing runs.
func (c *copies) Usage(context.Context) (driver.Usage, error) { return driver.Usage{}, nil }

// Destroy implements driver.Zygote.
func (c *copies) Destroy(context.Context) error {
	c.once.Do(func() { close(c.dead) })
	return c.kept.Close()
}
