package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// maker makes sandboxes in this process.
type maker struct {
	driver   driver.Driver
	template image.Template
	report   driver.Report
	count    atomic.Int64
}

// newMaker returns nil where there is no driver to measure, with the reason.
func (s *session) newMaker() (*maker, error) {
	if s.o.NewDriver == nil {
		return nil, errors.New("no driver was handed in")
	}
	template, err := image.Host(image.HostTree())
	if err != nil {
		return nil, err
	}
	d, err := s.o.NewDriver()
	if err != nil {
		return nil, err
	}
	r, err := d.Probe(s.ctx, template)
	if err == nil && r.Blocked != nil {
		err = r.Blocked
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &maker{driver: d, template: template, report: r}, nil
}

// withMaker measures with a maker, or says in the section why there is none.
func (s *session) withMaker(sec *Section, measure func(*maker) error) error {
	m, err := s.newMaker()
	if err != nil {
		sec.Note("not measured: %v", err)
		return nil
	}
	return errors.Join(measure(m), m.driver.Close())
}

// steps are where the time of one life went.
type steps struct{ create, greet, run, destroy time.Duration }

func (s steps) all() time.Duration { return s.create + s.greet + s.run + s.destroy }

// open makes one sandbox and greets its agent.
func (m *maker) open(ctx context.Context) (box driver.Machine, g *guest.Guest, took steps, err error) {
	began := time.Now()
	spec := sandbox.Spec{Code: "-"}.WithDefaults()
	plan, err := driver.MakePlan(spec.Machine(), m.template, m.report, fmt.Sprintf("bench-%d-%d", os.Getpid(), m.count.Add(1)))
	if err != nil {
		return nil, nil, took, err
	}
	if box, err = m.driver.Create(ctx, plan); err != nil {
		return nil, nil, took, err
	}
	took.create = time.Since(began)
	began = time.Now()
	conn, err := box.Dial(ctx)
	if err != nil {
		return nil, nil, took, errors.Join(err, box.Destroy(ctx))
	}
	g, err = guest.New(ctx, conn, wire.Hello{
		Version: wire.Version, UID: plan.User.UID, GID: plan.User.GID, SwitchUser: plan.SwitchUser, Home: plan.User.Home,
	})
	if err != nil {
		return nil, nil, took, errors.Join(err, box.Destroy(ctx))
	}
	took.greet = time.Since(began)
	return box, g, took, nil
}

// life is one sandbox from nothing to nothing, with /bin/true run in it. It is
// not cut off when ctx ends.
func (m *maker) life(ctx context.Context) (steps, error) {
	if err := ctx.Err(); err != nil {
		return steps{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	box, g, took, err := m.open(ctx)
	if err != nil {
		return took, err
	}
	began := time.Now()
	p, err := g.Start(ctx, guest.Command{Args: []string{trueProgram}, Dir: sandbox.Home}, guest.Streams{})
	if err == nil {
		var e guest.Exit
		if e, err = p.Wait(ctx); err == nil && e.Code != 0 {
			err = fmt.Errorf("%s ended with %d", trueProgram, e.Code)
		}
	}
	took.run = time.Since(began)
	began = time.Now()
	err = errors.Join(err, box.Destroy(ctx), g.Close())
	took.destroy = time.Since(began)
	return took, err
}

// many lives total lives, n at a time, and returns how long each took.
func (m *maker) many(ctx context.Context, total, n int) (sample, time.Duration, error) {
	took := make(sample, total)
	var next, failures atomic.Int64
	var first error
	var keep sync.Once
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(total) && ctx.Err() == nil; i = next.Add(1) - 1 {
				start := time.Now()
				if _, err := m.life(ctx); err != nil {
					failures.Add(1)
					keep.Do(func() { first = err })
				}
				took[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	if first != nil {
		return nil, 0, fmt.Errorf("%d of %d sandboxes failed; the first: %w", failures.Load(), total, first)
	}
	return took, time.Since(began), nil
}

// driverAlone measures create → /bin/true → destroyed without a new process of
// ours for each, beside the kernel's floor, and weighs the agent.
func (s *session) driverAlone() error {
	sec, done := s.section("driver", "The native driver alone: create → `/bin/true` → destroyed, in process",
		"The floor is what the kernel takes for six namespaces and an exec, with nothing set up in them.")
	defer done()
	return s.withMaker(sec, func(m *maker) error {
		for _, measure := range []func(*Section, *maker) error{s.lives, s.atATime, s.agent} {
			if err := measure(sec, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// lives measures one life after another, in turns with the floor.
func (s *session) lives(sec *Section, m *maker) error {
	var floors, creates, greets, runs, destroys, whole sample
	for i := range max(20, 3*s.o.Rounds) + 3 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		took, err := m.life(s.ctx)
		if err != nil {
			return err
		}
		floor, err := kernelFloor()
		if err != nil {
			sec.Note("no floor: %v", err)
		}
		if i < 3 {
			continue
		}
		creates, greets, runs = append(creates, took.create), append(greets, took.greet), append(runs, took.run)
		destroys, whole, floors = append(destroys, took.destroy), append(whole, took.all()), append(floors, floor)
	}
	t := &Table{ID: "driver", First: "what", Columns: append(spread(), Column{"beside_floor", "beside the floor", UnitTimes})}
	for _, row := range []struct {
		what string
		s    sample
	}{
		{"the kernel's floor", floors},
		{"a whole sandbox", whole},
		{"of it: create", creates},
		{"of it: greet the agent", greets},
		{"of it: the command", runs},
		{"of it: destroy", destroys},
	} {
		t.Add(row.what, "", append(row.s.values(), over(ms(row.s.median()), ms(floors.median())))...)
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}

// atATime measures how making sandboxes scales.
func (s *session) atATime(sec *Section, m *maker) error {
	t := &Table{ID: "driver-rate", First: "at a time", Columns: []Column{{"per_second", "per second", UnitRate}, {"beside_one", "beside one at a time", UnitTimes}}}
	single := none
	for _, n := range []int{1, 2, 4, 8, 16} {
		total := 2 * max(s.o.Rounds, 10) * min(n, 4)
		_, took, err := m.many(s.ctx, total, n)
		if err != nil {
			return err
		}
		rate := float64(total) / took.Seconds()
		if n == 1 {
			single = rate
		}
		t.Add(fmt.Sprint(n), "", rate, over(rate, single))
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}

// agent weighs the program that every sandbox carries.
func (s *session) agent(sec *Section, m *maker) error {
	t := &Table{ID: "agent", Title: "The agent, process 1 of every sandbox:", First: "what", Columns: []Column{{"kb", "size", UnitKB}}}
	if s.o.AgentSize != nil {
		if n, err := s.o.AgentSize(); err == nil {
			t.Add("its executable, one sealed file that all sandboxes share", "", float64(n)/1024)
		}
	}
	box, g, _, err := m.open(s.ctx)
	if err != nil {
		return err
	}
	s.sleep(300 * time.Millisecond)
	idle := agentMemory()
	ctx := context.WithoutCancel(s.ctx)
	if err := errors.Join(box.Destroy(ctx), g.Close()); err != nil {
		return err
	}
	if idle > 0 {
		t.Add("its unshared memory when idle", "", float64(idle)/1024)
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}
