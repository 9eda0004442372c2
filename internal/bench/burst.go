package bench

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// burst sends many requests at one moment. A contender that refuses some is
// counted, not left out: that is what is measured.
func (s *session) burst() error {
	sec, done := s.section("burst", fmt.Sprintf("Burst: %d programs at once", burstSize),
		fmt.Sprintf("All requests leave at the same moment; the server's pools hold %d. A refusal is an answer that says so; lost is what was answered with a failure or not at all. \"Single\" is one request alone, just before.", poolSize))
	if s.data && s.dataPool() != poolSize {
		sec.Note("the pool of interpreters with modules holds %d only", s.dataPool())
	}
	defer func() {
		chart := Chart{File: "burst.svg", Title: fmt.Sprintf("%d programs at once: p99", burstSize), Unit: UnitMS}
		for _, row := range sec.Tables[0].Rows {
			chart.AddBar(row.What, row.Values[2], strings.HasPrefix(row.What, "POST") || strings.HasPrefix(row.What, "pinfold"))
		}
		sec.Charts = append(sec.Charts, chart)
		done()
	}()
	t := &Table{ID: "burst", First: "what", Columns: []Column{
		{"single_ms", "single", UnitMS},
		{"p50_ms", "p50", UnitMS},
		{"p99_ms", "p99", UnitMS},
		{"last_ms", "last", UnitMS},
		{"p99_beside_single", "p99 beside single", UnitTimes},
		{"refused", "refused", UnitCount},
		{"lost", "lost", UnitCount},
	}}
	sec.Tables = append(sec.Tables, t)
	rounds := 3
	if s.o.Quick {
		rounds = 1
	}
	for _, w := range s.workloads() {
		for _, c := range s.peers {
			switch {
			case !c.can(w) || w.id == "true":
				continue
			case w.heavy && c.name != serverRunWarm: // a minute of nothing but imports
				continue
			case c.name == "docker run" || c.name == "E2B-compatible": // a hundred of these is no fair load
				continue
			}
			if err := s.burstOf(t, sec, c, w, rounds); err != nil {
				return err
			}
		}
	}
	s.noteWarm(sec)
	return nil
}

// noteWarm says how many runs were warm.
func (s *session) noteWarm(sec *Section) {
	if s.server == nil {
		return
	}
	if line := s.server.warmShare(); line != "" {
		sec.Note("%s", line)
	}
}

func (s *session) burstOf(t *Table, sec *Section, c *contender, w workload, rounds int) error {
	var single, all sample
	var first error
	refused, lost := 0, 0
	for range rounds {
		for range 5 {
			s.settled(c)
			began := time.Now()
			if err := c.run(s.ctx, w); err != nil {
				if s.ctx.Err() == nil {
					s.leaveOut(sec, c, w, err)
				}
				return s.ctx.Err()
			}
			single = append(single, time.Since(began))
		}
		s.settled(c)
		times, errs := s.together(c, w)
		all = append(all, times...)
		for _, err := range errs {
			var no *refusedError
			if errors.As(err, &no) {
				refused++
				continue
			}
			if lost++; first == nil {
				first = err
			}
		}
	}
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	name := c.name
	if w.heavy {
		name += ", with " + w.modules[1]
	}
	t.Add(name, "", ms(single.median()), ms(all.median()), ms(all.at(0.99)), ms(all.at(1)), over(ms(all.at(0.99)), ms(single.median())), float64(refused), float64(lost))
	if first != nil && c.ours {
		s.fail(fmt.Errorf("burst: %s: %d of %d requests were lost; the first: %w", name, lost, rounds*burstSize, first))
	}
	if first != nil {
		sec.Note("%s: the first failure: %v", name, first)
	}
	return nil
}

// settled waits until what went on before is over.
func (s *session) settled(c *contender) {
	if c.settle != nil {
		c.settle(s.ctx)
	}
}

// together runs a workload many times at one moment.
func (s *session) together(c *contender, w workload) (sample, []error) {
	times, errs := make(sample, burstSize), make([]error, burstSize)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range burstSize {
		wg.Go(func() {
			<-start
			began := time.Now()
			errs[i] = c.run(s.ctx, w)
			times[i] = time.Since(began)
		})
	}
	close(start)
	wg.Wait()
	var good sample
	var bad []error
	for i, err := range errs {
		if err != nil {
			bad = append(bad, err)
		} else {
			good = append(good, times[i])
		}
	}
	return good, bad
}
