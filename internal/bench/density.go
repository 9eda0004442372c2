package bench

import (
	"fmt"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// levels are how many sandboxes live while it is measured.
func (s *session) levels() []int {
	if s.o.Quick {
		return []int{1, 10, 50}
	}
	return []int{1, 10, 100, 1000}
}

// density lets the number of living, idle sandboxes grow, and measures at each
// level what a run, a new sandbox and a command cost, and what memory is used.
func (s *session) density() error {
	if s.server == nil {
		return nil // why is said already
	}
	levels := s.levels()
	sec, done := s.section("density", fmt.Sprintf("Growth: 1 to %d living sandboxes", levels[len(levels)-1]),
		"Idle sandboxes live on one server while others are made, used and run. A run takes its sandbox from a pool, \"create\" and \"command\" are a new one of another shape and `/bin/true` in one of those that live. Memory is what is shared with nobody; \"server\" is its own process.")
	defer done()
	t := &Table{ID: "density", First: "living", Columns: []Column{
		{"run_ms", "run", UnitMS},
		{"create_ms", "create", UnitMS},
		{"command_ms", "command", UnitMS},
		{"sandbox_kb", "memory of each", UnitKB},
		{"server_mb", "server", UnitMB},
		{"host_kb", "host, for each", UnitKB},
	}}
	sec.Tables = append(sec.Tables, t)
	var all []*client.Sandbox
	defer func() {
		s.o.Progress("density: ending the sandboxes")
		for _, x := range all {
			destroy(x)
		}
	}()
	s.server.poolsFull(s.ctx, fillTimeout)
	base, used := s.treeMemory(), memoryInUse()
	for _, n := range levels {
		for len(all) < n {
			x, err := s.server.cl.Create(s.ctx, sandbox.Create{TTLMS: time.Hour.Milliseconds()})
			if err != nil {
				if s.server.child == nil && s.ctx.Err() == nil {
					sec.Note("not measured with %d: the server that was named says: %v", n, err)
					return nil
				}
				return fmt.Errorf("sandbox %d: %w", len(all)+1, err)
			}
			all = append(all, x)
		}
		s.o.Progress(fmt.Sprintf("density: %d living", n))
		if err := s.level(t, all, base, used); err != nil {
			return err
		}
	}
	sec.Charts = append(sec.Charts, growthChart(t))
	return s.warmMemory(sec)
}

// level measures with so many living.
func (s *session) level(t *Table, all []*client.Sandbox, base, used int64) error {
	n := len(all)
	s.server.poolsFull(s.ctx, fillTimeout)
	s.sleep(300 * time.Millisecond)
	each, server, host := none, none, none
	if s.server.child != nil {
		each = max(0, float64(s.treeMemory()-base)/float64(n)/1024)
		server = float64(Unshared(s.server.child.pid)) / (1 << 20)
		host = max(0, float64(memoryInUse()-used)/float64(n)/1024)
	}
	var runs, creates, commands sample
	// Another shape than the pool's: made when it is asked for.
	odd := sandbox.Create{Limits: sandbox.Limits{Processes: processLimit + 1}, TTLMS: time.Minute.Milliseconds()}
	for i := range max(s.o.Rounds, 10) + 3 {
		began := time.Now()
		if _, err := s.server.run(s.ctx, s.printing(), s.server.warm); err != nil {
			return err
		}
		run := time.Since(began)
		s.server.settled(s.ctx)
		began = time.Now()
		x, err := s.server.cl.Create(s.ctx, odd)
		if err != nil {
			return err
		}
		create := time.Since(began)
		destroy(x)
		began = time.Now()
		if err := execTrue(s.ctx, all[i*7919%n]); err != nil {
			return err
		}
		if i >= 3 {
			runs, creates, commands = append(runs, run), append(creates, create), append(commands, time.Since(began))
		}
	}
	t.Add(fmt.Sprint(n), "", ms(runs.median()), ms(creates.median()), ms(commands.median()), each, server, host)
	return nil
}

// treeMemory is what the server's sandboxes use; zero of a server elsewhere.
func (s *session) treeMemory() int64 {
	if s.server.child == nil {
		return 0
	}
	return treeMemory(s.server.child.pid)
}

func growthChart(t *Table) Chart {
	c := Chart{File: "growth.svg", Title: "Median beside the number of living sandboxes", Unit: UnitMS, XTitle: "living sandboxes"}
	for i, name := range []string{"a run", "a new sandbox", "a command"} {
		line := Series{Name: name}
		for _, row := range t.Rows {
			var x float64
			if _, err := fmt.Sscan(row.What, &x); err == nil && known(row.Values[i]) {
				line.X, line.Y = append(line.X, x), append(line.Y, row.Values[i])
			}
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

// warmMemory measures what a sandbox costs that waits: a pool is filled and the
// memory of everything below the server compared. With warm interpreters, for
// those too.
func (s *session) warmMemory(sec *Section) error {
	if s.server.child == nil {
		return nil // its memory is not ours to see
	}
	t := &Table{
		ID: "waiting", Title: "Unshared memory of a sandbox that waits in a pool:", First: "pool",
		Columns: []Column{{"each_kb", "each", UnitKB}, {"count", "waiting", UnitCount}},
	}
	names, pools := []string{"a sandbox"}, []sandbox.PoolSpec{{}}
	if s.server.warm {
		names, pools = append(names, "a warm Python"), append(pools, sandbox.PoolSpec{Language: "python"})
		if s.data {
			names, pools = append(names, "a warm Python with "+dataModules()[1]), append(pools, sandbox.PoolSpec{Language: "python", Warm: dataModules()})
		}
	}
	for i, p := range pools {
		// A shape of its own, so that nothing else is taken from it.
		p.Name, p.Max, p.Limits.Processes = fmt.Sprintf("bench-memory-%d", i), 2*poolSize, int64(processLimit+2+i)
		each, err := s.waiting(p)
		if err != nil {
			return err
		}
		t.Add(names[i], "", each/1024, poolSize)
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}

// waiting fills a pool from one to many and returns what each of them costs.
func (s *session) waiting(p sandbox.PoolSpec) (float64, error) {
	size := func(n int) (int64, error) {
		p.Min = n
		if _, err := s.server.cl.SetPool(s.ctx, p); err != nil {
			return 0, err
		}
		s.server.poolsFull(s.ctx, fillTimeout)
		s.sleep(500 * time.Millisecond)
		return s.treeMemory(), nil
	}
	one, err := size(1)
	if err != nil {
		return none, err
	}
	full, err := size(1 + poolSize)
	if err != nil {
		return none, err
	}
	err = s.server.cl.RemovePool(s.ctx, p.Name)
	return float64(full-one) / poolSize, err
}
