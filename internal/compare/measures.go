package compare

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
// The drivers take turns, with what there is beside them.
func (c *comparison) starts() error {
	t := &bench.Table{ID: "starts", First: "driver", Columns: []bench.Column{
		{Key: "cold_ms", Head: "cold", Unit: bench.UnitMS},
		{Key: "create_ms", Head: "of it making the sandbox", Unit: bench.UnitMS},
		{Key: "warm_ms", Head: "warm", Unit: bench.UnitMS},
		{Key: "beside_bare", Head: "cold beside bare", Unit: bench.UnitTimes},
	}, Last: "note"}
	s := &bench.Section{
		Part: "starts", Title: "What a run of `print(1)` takes", Tables: []*bench.Table{t},
		Text: "From the request to the complete result, one at a time, medians. Cold: everything is made for the run. Warm: a sandbox with an interpreter waits in a pool. Bare is `python3 -c` by itself.",
	}
	m := starting{cold: map[string][]time.Duration{}, create: map[string][]time.Duration{}, failed: map[string]bool{}}
	for round := range c.o.Rounds + 1 { // the first one, in which things are made once, does not count
		c.o.Progress(fmt.Sprintf("cold runs, round %d of %d", round, c.o.Rounds))
		if err := c.round(&m, round > 0); err != nil {
			return err
		}
	}
	base := median(m.bare)
	chart := bench.Chart{File: "compare-starts.svg", Title: "print(1) in a fresh sandbox: median", Unit: bench.UnitMS}
	for _, d := range c.all {
		c.o.Progress("warm runs: " + d.Driver)
		note := ""
		all, err := c.warm(d.Driver)
		if err != nil {
			note = "no warm one: " + sandbox.SafeText(err.Error(), 200)
		}
		if m.failed[d.Driver] {
			note = strings.TrimSuffix("a cold one failed; "+note, "; ")
		}
		ms, warm := median(m.cold[d.Driver]), median(all)
		t.Add(d.Driver, note, ms, median(m.create[d.Driver]), warm, ms/base)
		chart.AddBar(d.Driver+", cold", ms, true)
		chart.AddBar(d.Driver+", warm", warm, true)
		for _, p := range c.peers {
			if p.beside == d.Driver {
				ms := median(p.times)
				t.Add(p.name, p.note(), ms, math.NaN(), math.NaN(), ms/base)
				chart.AddBar(p.name, ms, false)
			}
		}
	}
	t.Add("bare python3", "holds nothing", base, math.NaN(), math.NaN(), 1)
	chart.AddBar("bare python3", base, false)
	s.Charts = []bench.Chart{chart}
	c.done(s)
	return nil
}

// starting is what is measured in turns.
type starting struct {
	bare         []time.Duration
	cold, create map[string][]time.Duration // by driver
	failed       map[string]bool            // drivers that are left out from then on
}

// round is one turn of everything.
func (c *comparison) round(m *starting, count bool) error {
	begun := time.Now()
	if _, err := c.bare(c.ctx, printing); err != nil {
		return err
	}
	if count {
		m.bare = append(m.bare, time.Since(begun))
	}
	c.turn(count)
	for _, d := range c.all {
		if m.failed[d.Driver] {
			continue
		}
		program := spec(d.Driver, printing)
		program.Cold = true
		r, took, err := c.run(program)
		if err == nil {
			err = printed(r)
		}
		switch {
		case c.ctx.Err() != nil:
			return c.ctx.Err()
		case err != nil:
			m.failed[d.Driver] = true
			c.fail(err)
		case count:
			m.cold[d.Driver] = append(m.cold[d.Driver], took)
			m.create[d.Driver] = append(m.create[d.Driver], time.Duration(r.Timings.CreateMS*float64(time.Millisecond)))
		}
	}
	return nil
}

// warm measures runs in sandboxes that wait, one after another, each when the next waits.
func (c *comparison) warm(name string) (all []time.Duration, err error) {
	err = c.pooled(name, 2, func(pool sandbox.PoolSpec) error {
		for range c.o.Rounds {
			if err := c.filled(pool); err != nil {
				return err
			}
			r, took, err := c.run(spec(name, printing))
			if err == nil {
				err = printed(r)
			}
			if err != nil {
				return err
			}
			if r.Warm {
				all = append(all, took)
			}
		}
		return nil
	})
	return all, err
}

// pooled does something while a pool of a driver's is there, and full at the beginning.
func (c *comparison) pooled(name string, size int, do func(sandbox.PoolSpec) error) error {
	pool := sandbox.PoolSpec{Name: "compare", Driver: name, Language: "python", Limits: limits, Min: size}
	if _, err := c.engine.SetPool(c.ctx, pool); err != nil {
		return err
	}
	defer func() { _ = c.engine.RemovePool(context.WithoutCancel(c.ctx), pool.Name) }()
	if err := c.filled(pool); err != nil {
		return err
	}
	return do(pool)
}

// filledTime is how long a pool may take to be full.
const filledTime = 3 * time.Minute

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

// throughput measures cold runs, four at a time, and what of the processors each takes.
func (c *comparison) throughput() error {
	t := &bench.Table{ID: "throughput", First: "driver", Columns: []bench.Column{
		{Key: "per_second", Head: "cold runs", Unit: bench.UnitRate},
		{Key: "cpu_ms", Head: "processors' time each", Unit: bench.UnitMS},
		{Key: "warm_per_second", Head: "warm runs", Unit: bench.UnitRate},
		{Key: "warm_cpu_ms", Head: "processors' time each", Unit: bench.UnitMS},
	}}
	chart := bench.Chart{File: "compare-throughput.svg", Title: fmt.Sprintf("print(1) in fresh sandboxes, %d at a time", together), Unit: bench.UnitRate}
	s := &bench.Section{
		Part: "throughput", Title: "Throughput, and what a run costs", Tables: []*bench.Table{t},
		Text: fmt.Sprintf("Runs of `print(1)`, %d at a time, cold and from a pool of %d that is filled meanwhile. Processors' time is that of the whole machine while they ran, so that of engines and of machines is in it.", together, 2*together),
	}
	for _, d := range c.all {
		c.o.Progress("throughput: " + d.Driver)
		cold, cpu, err := c.rate(d.Driver, true)
		if err != nil && c.ctx.Err() == nil {
			c.fail(fmt.Errorf("throughput: %w", err))
		}
		warm, warmCPU, err := c.warmRate(d.Driver)
		if err != nil {
			s.Note("%s: no warm ones: %v", d.Driver, err)
		}
		t.Add(d.Driver, "", cold, cpu, warm, warmCPU)
		chart.AddBar(d.Driver+", cold", cold, true)
		chart.AddBar(d.Driver+", warm", warm, true)
	}
	s.Charts = []bench.Chart{chart}
	c.done(s)
	return nil
}

// warmRate is rate with a pool.
func (c *comparison) warmRate(name string) (rate, cpu float64, err error) {
	err = c.pooled(name, 2*together, func(sandbox.PoolSpec) error {
		rate, cpu, err = c.rate(name, false)
		return err
	})
	if err != nil {
		rate, cpu = math.NaN(), math.NaN()
	}
	return rate, cpu, err
}

// rateTime is from when on no further round is begun.
const rateTime = 20 * time.Second

// rate is how many runs a second there are, and what each takes of the processors, in ms.
func (c *comparison) rate(name string, cold bool) (rate, cpu float64, err error) {
	var wg sync.WaitGroup
	var done atomic.Int64
	errs := make([]error, together)
	busy, begun := busyTime(), time.Now()
	for i := range together {
		wg.Go(func() {
			for n := 0; n < c.o.Rounds && (n == 0 || time.Since(begun) < rateTime); n++ {
				program := spec(name, printing)
				program.Cold = cold
				r, _, err := c.run(program)
				if err == nil {
					err = printed(r)
				}
				if err != nil {
					errs[i] = err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took, all := time.Since(begun), float64(done.Load())
	busy = busyTime() - busy
	for _, err := range errs {
		if err != nil {
			return math.NaN(), math.NaN(), err
		}
	}
	return all / took.Seconds(), float64(busy) / all / float64(time.Millisecond), nil
}

// busyTime is how long the processors of this machine have worked, all together
// (proc_stat(5): in hundredths of a second).
func busyTime() (sum time.Duration) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(line) {
		n, _ := strconv.ParseInt(word, 10, 64)
		if i > 0 && i != 4 && i != 5 && i < 8 { // not the idle ones, and not what others took of us
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// many is how many wait together where their memory is measured.
const many = 8

// memory measures what a sandbox costs that waits.
func (c *comparison) memory() error {
	t := &bench.Table{ID: "memory", First: "driver", Columns: []bench.Column{
		{Key: "memory_kb", Head: "by itself", Unit: bench.UnitKB}, {Key: "python_kb", Head: "in a pool, with a Python", Unit: bench.UnitKB},
	}}
	chart := bench.Chart{File: "compare-memory.svg", Title: "Memory of a sandbox that waits", Unit: bench.UnitKB}
	s := &bench.Section{
		Part: "memory", Title: "Memory of a sandbox that waits", Tables: []*bench.Table{t},
		Text: fmt.Sprintf("For each of %d sandboxes: what the processes share with nobody that came with them. By itself nothing runs in it; in a pool an interpreter waits, and what all are made from is in it, too. The middle of three looks, since others on the machine start processes, too.", many),
	}
	for _, d := range c.all {
		c.o.Progress("memory: " + d.Driver)
		each, err := middle(func() (float64, error) { return c.living(d.Driver) })
		if err != nil && c.ctx.Err() == nil {
			c.fail(fmt.Errorf("memory: %s: %w", d.Driver, err))
		}
		python, err := middle(func() (float64, error) { return c.waiting(d.Driver) })
		if err != nil {
			s.Note("%s: no pool: %v", d.Driver, err)
		}
		t.Add(d.Driver, "", each, python)
		chart.AddBar(d.Driver, each, true)
		chart.AddBar(d.Driver+", with Python", python, true)
	}
	s.Charts = []bench.Chart{chart}
	c.done(s)
	return nil
}

// middle is that of three looks.
func middle(look func() (float64, error)) (float64, error) {
	var looks []float64
	for range 3 {
		kb, err := look()
		if err != nil {
			return math.NaN(), err
		}
		looks = append(looks, kb)
	}
	slices.Sort(looks)
	return max(looks[len(looks)/2], 0), nil
}

// living makes many, and says what each takes, in kB.
func (c *comparison) living(name string) (kb float64, err error) {
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
	return since(before), nil
}

// waiting has a pool of as many, and says the same.
func (c *comparison) waiting(name string) (kb float64, err error) {
	before := processes()
	err = c.pooled(name, many, func(sandbox.PoolSpec) error {
		kb = since(before)
		return nil
	})
	return kb, err
}

// since adds up what processes hold that are new, for each of many.
func since(before map[int]bool) (kb float64) {
	for pid := range processes() {
		if !before[pid] {
			kb += float64(bench.Unshared(pid)) / many / (1 << 10)
		}
	}
	return kb
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
