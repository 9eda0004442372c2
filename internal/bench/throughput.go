package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// throughput lets each contender run as many programs as it can, several at a
// time. The span of each is cut into slices, so that contenders take turns;
// with Long it is in one piece: sustained.
func (s *session) throughput() error {
	for _, w := range s.workloads() {
		if w.id == "true" {
			continue
		}
		text := fmt.Sprintf("%d at a time, %v for each contender", s.o.Concurrency, s.o.Duration)
		if s.slices() > 1 {
			text += ", in turns"
		}
		sec, done := s.section("throughput", "Throughput: "+w.title, text+".")
		err := s.throughputOf(sec, w)
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) slices() int {
	if s.o.Long || s.o.Quick {
		return 1
	}
	return 5
}

// tally is what a contender did under load.
type tally struct {
	times sample
	span  time.Duration
}

func (t tally) rate() float64 {
	if t.span == 0 {
		return none
	}
	return float64(len(t.times)) / t.span.Seconds()
}

func (s *session) throughputOf(sec *Section, w workload) error {
	tallies := map[*contender]*tally{}
	out := map[*contender]bool{}
	n := s.slices()
	for slice := range n {
		for i := range s.peers {
			c := s.peers[(i+slice)%len(s.peers)]
			if out[c] || !c.can(w) {
				continue
			}
			if s.server != nil { // what the one before has used up is made again before this one begins
				s.server.poolsFull(s.ctx, 30*time.Second)
			}
			times, span, err := sustained(s.ctx, c, w, s.o.Concurrency, s.o.Duration/time.Duration(n))
			switch {
			case s.ctx.Err() != nil:
				return s.ctx.Err()
			case err != nil:
				out[c] = true
				delete(tallies, c)
				s.leaveOut(sec, c, w, err)
				continue
			}
			if tallies[c] == nil {
				tallies[c] = &tally{}
			}
			tallies[c].times = append(tallies[c].times, times...)
			tallies[c].span += span
		}
	}
	t := &Table{
		ID: "throughput-" + w.id, First: "what", Last: "isolation",
		Columns: []Column{{"per_second", "per second", UnitRate}, besideBare(), {"median_ms", "median", UnitMS}, {"p99_ms", "p99", UnitMS}},
	}
	chart := Chart{File: "throughput-" + w.id + ".svg", Title: fmt.Sprintf("Throughput of %s, %d at a time", plain(w.title), s.o.Concurrency), Unit: UnitRate}
	bare := none
	for _, c := range s.peers {
		m := tallies[c]
		if m == nil || len(m.times) == 0 {
			continue
		}
		if c == s.peers[0] {
			bare = m.rate()
		}
		t.Add(c.name, c.note, m.rate(), over(m.rate(), bare), ms(m.times.median()), ms(m.times.at(0.99)))
		chart.AddBar(c.name, m.rate(), c.ours)
	}
	sec.Tables = append(sec.Tables, t)
	sec.Charts = append(sec.Charts, chart)
	s.noteWarm(sec)
	return nil
}

// sustained lets a contender run a workload, together at a time, for a span.
// The first failure ends it.
func sustained(ctx context.Context, c *contender, w workload, together int, span time.Duration) (sample, time.Duration, error) {
	began := time.Now()
	var wg sync.WaitGroup
	var stop atomic.Bool
	times, errs := make([]sample, together), make([]error, together)
	for i := range together {
		wg.Go(func() {
			for time.Since(began) < span && !stop.Load() && ctx.Err() == nil {
				start := time.Now()
				if errs[i] = c.run(ctx, w); errs[i] != nil {
					stop.Store(true)
					return
				}
				times[i] = append(times[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	var all sample
	for _, t := range times {
		all = append(all, t...)
	}
	for _, err := range errs {
		if err != nil {
			return nil, took, err
		}
	}
	return all, took, nil
}
