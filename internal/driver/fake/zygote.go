package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"pinfold/internal/driver"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// Zygote is a zygote of memory. Its children are functions of this process.
type Zygote struct {
	driver *Driver
	memory atomic.Int64
	busy   atomic.Bool
	once   sync.Once
	dead   chan struct{}
}

// NewZygote implements driver.Zygoter.
func (d *Driver) NewZygote(ctx context.Context, _ driver.Plan, _ zygote.Spec) (driver.Zygote, error) {
	if err := d.o.Zygote(ctx); err != nil {
		return nil, err
	}
	z := &Zygote{driver: d, dead: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.zygotes = append(d.zygotes, z)
	return z, nil
}

// Zygote returns the zygote that was started as number i, or nil where there are fewer.
func (d *Driver) Zygote(i int) *Zygote {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i >= len(d.zygotes) {
		return nil
	}
	return d.zygotes[i]
}

// Die ends the zygote as a crash would, and its children's machines with it.
func (z *Zygote) Die() { z.once.Do(func() { close(z.dead) }) }

// SetMemory says what memory it has, in bytes.
func (z *Zygote) SetMemory(n int64) { z.memory.Store(n) }

// SetBusy says whether it has too much to do to fork.
func (z *Zygote) SetBusy(busy bool) { z.busy.Store(busy) }

// Dead implements driver.Zygote.
func (z *Zygote) Dead() <-chan struct{} { return z.dead }

// Usage implements driver.Zygote.
func (z *Zygote) Usage(context.Context) (driver.Usage, error) {
	select {
	case <-z.dead:
		return driver.Usage{}, driver.ErrEnded
	default:
		return driver.Usage{MemoryBytes: z.memory.Load()}, nil
	}
}

// Destroy implements driver.Zygote.
func (z *Zygote) Destroy(context.Context) error {
	z.Die()
	return nil
}

// Fork implements driver.Zygote. The machine has an init stub.
func (z *Zygote) Fork(ctx context.Context, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	select {
	case <-z.dead:
		return nil, nil, zygote.ErrEnded
	default:
	}
	if z.busy.Load() {
		return nil, nil, &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: "scripted"}
	}
	made, err := z.driver.Create(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	m := made.(*Machine) //nolint:errcheck,forcetypeassert // ours
	c, theirs, err := newChild()
	if err != nil {
		return nil, nil, errors.Join(err, m.Destroy(ctx))
	}
	m.stub = &stub{killed: make(chan struct{})}
	m.agent.Go(func() {
		select {
		case <-z.dead:
			m.Die(driver.Death{Kind: driver.DeathAgent, Evidence: "with its zygote"})
		case <-m.dead:
		}
	})
	m.agent.Go(func() { m.stub.run(m, theirs) })
	return m, c, nil
}

// stub is the init stub of a machine, and the child beside it.
type stub struct {
	once   sync.Once
	killed chan struct{} // closed by KillGuest
}

// childEnds are a child's ends of its pipes, and how it says that it has ended.
type childEnds struct {
	stdin, stdout, stderr *os.File
	exited                chan zygote.Exit
}

func newChild() (*zygote.Child, *childEnds, error) {
	var pipes [6]*os.File
	for i := range 3 {
		var err error
		if pipes[2*i], pipes[2*i+1], err = os.Pipe(); err != nil {
			for _, f := range pipes[:2*i] {
				_ = f.Close()
			}
			return nil, nil, err
		}
	}
	exited := make(chan zygote.Exit, 1)
	return &zygote.Child{Stdin: pipes[1], Stdout: pipes[2], Stderr: pipes[4], PID: 2, Exited: exited},
		&childEnds{stdin: pipes[0], stdout: pipes[3], stderr: pipes[5], exited: exited}, nil
}

// run is the child's life: it waits for its program, runs it, and tells how it ended,
// unless its machine ended first.
func (s *stub) run(m *Machine, c *childEnds) {
	defer close(c.exited)
	ended := make(chan zygote.Exit, 1)
	m.agent.Go(func() { ended <- interpret(s.killed, m.dead, c) })
	select {
	case e := <-ended:
		c.exited <- e
	case <-s.killed:
		c.exited <- zygote.Exit{Signal: sigKill}
	case <-m.dead:
	}
	for _, f := range []*os.File{c.stdin, c.stdout, c.stderr} {
		_ = f.Close()
	}
}

// interpret runs the programs that a fake interpreter knows: "exit N" and "sleep". Of
// others it says that it was told to run them.
func interpret(killed, dead <-chan struct{}, c *childEnds) zygote.Exit {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c.stdin, head); err != nil {
		return zygote.Exit{}
	}
	size, err := strconv.ParseInt(string(head), 16, 32)
	if err != nil {
		return zygote.Exit{Code: 1}
	}
	var h struct{ Code string }
	if err := json.NewDecoder(io.LimitReader(c.stdin, size)).Decode(&h); err != nil {
		return zygote.Exit{Code: 1}
	}
	e := zygote.Exit{}
	switch n, _ := fmt.Sscanf(h.Code, "exit %d", &e.Code); {
	case n == 1:
	case h.Code == "sleep":
		select {
		case <-killed:
		case <-dead:
		}
	default:
		_, _ = fmt.Fprint(c.stdout, "forked ", h.Code)
	}
	return e
}

// KillGuest implements driver.InitStub.
func (m *Machine) KillGuest(context.Context) error {
	select {
	case <-m.dead:
		return errors.New("fake: the machine has ended")
	default:
	}
	if m.dialled.Load() {
		return errors.New("fake: the agent runs")
	}
	m.stub.once.Do(func() { close(m.stub.killed) })
	return nil
}
