package compare

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"pinfold/internal/bench"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

const printing = "print(1)"

// printed is nil when a program has printed what it should.
func printed(r *sandbox.Result) error {
	if r.Status == sandbox.StatusSucceeded && r.Stdout == "1\n" {
		return nil
	}
	return fmt.Errorf("%s: print(1) printed %q and ended with %s", r.Isolation.Driver, sandbox.SafeText(r.Stdout, 80), r.Cause.Kind)
}

// starts measures one program at a time: in a sandbox made for it, and in one that waits.
// The drivers take turns.
func (c *comparison) starts() error {
	t := &bench.Table{ID: "starts", First: "driver", Columns: []bench.Column{
		{Key: "cold_ms", Head: "cold", Unit: bench.UnitMS},
		{Key: "create_ms", Head: "of it making the sandbox", Unit: bench.UnitMS},
		{Key: "warm_ms", Head: "warm", Unit: bench.UnitMS},
		{Key: "beside_bare", Head: "cold beside bare", Unit: bench.UnitTimes},
	}, Last: "note"}
	chart := bench.Chart{File: "compare-starts.svg", Title: "print(1) in a fresh sandbox: median", Unit: bench.UnitMS}
	s := &bench.Section{
		Part: "starts", Title: "What a run of `print(1)` takes", Tables: []*bench.Table{t},
		Text: "From the request to the complete result, one at a time, medians. Cold: everything is made for the run. Warm: a sandbox with an interpreter waits in a pool. Bare is `python3 -c` by itself.",
	}
	cold, create, warm, notes := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}, map[string]string{}
	var bare []time.Duration
	for round := range c.o.Rounds + 1 { // the first one, in which things are made once, does not count
		c.o.Progress(fmt.Sprintf("cold runs, round %d of %d", round, c.o.Rounds))
		begun := time.Now()
		if _, err := c.bare(c.ctx, printing); err != nil {
			return err
		}
		if round > 0 {
			bare = append(bare, time.Since(begun))
		}
		for _, d := range c.all {
			program := spec(d.Driver, printing)
			program.Cold = true
			r, took, err := c.run(program)
			if err == nil {
				err = printed(r)
			}
			if err != nil {
				return err
			}
			if round > 0 {
				cold[d.Driver] = append(cold[d.Driver], took)
				create[d.Driver] = append(create[d.Driver], time.Duration(r.Timings.CreateMS*float64(time.Millisecond)))
			}
		}
	}
	for _, d := range c.all {
		c.o.Progress("warm runs: " + d.Driver)
		var err error
		if warm[d.Driver], err = c.warm(d.Driver); err != nil {
			notes[d.Driver] = "no warm one: " + sandbox.SafeText(err.Error(), 200)
		}
	}
	base := median(bare)
	for _, d := range c.all {
		ms := median(cold[d.Driver])
		t.Add(d.Driver, notes[d.Driver], ms, median(create[d.Driver]), median(warm[d.Driver]), ms/base)
		chart.AddBar(d.Driver, ms, true)
		chart.AddBar(d.Driver+", warm", median(warm[d.Driver]), true)
	}
	t.Add("bare python3", "holds nothing", base, math.NaN(), math.NaN(), 1)
	chart.AddBar("bare python3", base, false)
	s.Charts = []bench.Chart{chart}
	c.done(s)
	return nil
}

// warm measures runs in sandboxes that wait, one after another, each when the next waits.
func (c *comparison) warm(name string) (all []time.Duration, err error) {
	pool := sandbox.PoolSpec{Name: "compare", Driver: name, Language: "python", Limits: limits, Min: 2}
	if _, err := c.engine.SetPool(c.ctx, pool); err != nil {
		return nil, err
	}
	defer func() { _ = c.engine.RemovePool(c.ctx, pool.Name) }()
	for range c.o.Rounds {
		if err := c.filled(pool); err != nil {
			return nil, err
		}
		r, took, err := c.run(spec(name, printing))
		if err == nil {
			err = printed(r)
		}
		if err != nil {
			return nil, err
		}
		if r.Warm {
			all = append(all, took)
		}
	}
	return all, nil
}

// filledTime is how long a pool may take to be full.
const filledTime = time.Minute

// filled waits until a pool is.
func (c *comparison) filled(p sandbox.PoolSpec) error {
	ctx, cancel := context.WithTimeout(c.ctx, filledTime)
	defer cancel()
	for {
		for _, info := range c.engine.Pools() {
			switch {
			case info.Name == p.Name && info.Available >= p.Min:
				return nil
			case info.Name == p.Name && info.Error != nil:
				return info.Error
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pool was not full in time: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// together is how many run at a time for throughput.
const together = 4

// throughput measures cold runs, four at a time.
func (c *comparison) throughput() error {
	t := &bench.Table{ID: "throughput", First: "driver", Columns: []bench.Column{{Key: "per_second", Head: "runs", Unit: bench.UnitRate}}}
	chart := bench.Chart{File: "compare-throughput.svg", Title: fmt.Sprintf("print(1) in fresh sandboxes, %d at a time", together), Unit: bench.UnitRate}
	s := &bench.Section{Part: "throughput", Title: "Throughput", Text: fmt.Sprintf("Cold runs of `print(1)`, %d at a time, on this machine's processors.", together), Tables: []*bench.Table{t}}
	for _, d := range c.all {
		c.o.Progress("throughput: " + d.Driver)
		rate, err := c.rate(d.Driver)
		if err != nil {
			return err
		}
		t.Add(d.Driver, "", rate)
		chart.AddBar(d.Driver, rate, true)
	}
	s.Charts = []bench.Chart{chart}
	c.done(s)
	return nil
}

func (c *comparison) rate(name string) (float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, together)
	begun := time.Now()
	for i := range together {
		wg.Go(func() {
			for range c.o.Rounds {
				program := spec(name, printing)
				program.Cold = true
				r, _, err := c.run(program)
				if err == nil {
					err = printed(r)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(together*c.o.Rounds) / time.Since(begun).Seconds(), nil
}

// many is how many wait together where their memory is measured.
const many = 8

// memory measures what a sandbox costs that waits.
func (c *comparison) memory() error {
	t := &bench.Table{ID: "memory", First: "driver", Columns: []bench.Column{{Key: "memory_kb", Head: "unshared memory each", Unit: bench.UnitKB}}}
	s := &bench.Section{
		Part: "memory", Title: "Memory of a sandbox that waits", Tables: []*bench.Table{t},
		Text: fmt.Sprintf("For each of %d living sandboxes in which nothing runs: what the processes have for themselves that came with them. The middle of three looks, since others on the machine start processes, too.", many),
	}
	for _, d := range c.all {
		c.o.Progress("memory: " + d.Driver)
		each, err := c.each(d.Driver)
		if err != nil {
			return err
		}
		t.Add(d.Driver, "", each)
	}
	c.done(s)
	return nil
}

// each is what one takes, in kB.
func (c *comparison) each(name string) (float64, error) {
	var looks []float64
	for range 3 {
		look, err := c.look(name)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		looks = append(looks, look)
	}
	slices.Sort(looks)
	return max(looks[len(looks)/2], 0), nil
}

// look makes many, adds up what the processes hold that came with them, and ends them.
func (c *comparison) look(name string) (kb float64, err error) {
	before := processes()
	for range many {
		b, err := c.engine.Create(c.ctx, records.LocalTenant, sandbox.Create{Driver: name, Limits: limits, TTLMS: 600_000})
		if err != nil {
			return 0, err
		}
		defer func() {
			if _, ending := b.Destroy(context.WithoutCancel(c.ctx)); err == nil {
				err = ending
			}
		}()
	}
	for pid := range processes() {
		if !before[pid] {
			kb += float64(bench.Unshared(pid)) / many / (1 << 10)
		}
	}
	return kb, nil
}

// processes are the numbers of all that the host has.
func processes() map[int]bool {
	all := map[int]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all[pid] = true
		}
	}
	return all
}
