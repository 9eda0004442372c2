package bench

import (
	"time"

	"pinfold/sandbox"
)

// spread are the columns of durations.
func spread() []Column {
	return []Column{
		{"median_ms", "median", UnitMS},
		{"p95_ms", "p95", UnitMS},
		{"p99_ms", "p99", UnitMS},
		{"min_ms", "min", UnitMS},
	}
}

// values are the numbers of spread.
func (s sample) values() []float64 {
	return []float64{ms(s.median()), ms(s.at(0.95)), ms(s.at(0.99)), ms(s.at(0))}
}

func besideBare() Column { return Column{"beside_bare", "beside bare", UnitTimes} }

// latency measures one program after another, for each workload.
func (s *session) latency() error {
	for i, w := range s.workloads() {
		sec, done := s.section("latency", "Latency: "+w.title,
			"One at a time, from the request (a process started, a request sent) to the whole output. Without a server of ours that is a whole process for each.")
		if i == 0 {
			for _, l := range s.leftOut {
				sec.Note("left out: %s", l)
			}
		}
		err := s.latencyOf(sec, w)
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) latencyOf(sec *Section, w workload) error {
	rounds := s.o.Rounds
	if w.heavy {
		rounds = max(3, rounds/5)
	}
	if s.server != nil {
		s.server.poolsFull(s.ctx, fillTimeout)
	}
	times, err := s.race(sec, w, s.peers, rounds)
	if err != nil {
		return err
	}
	t := &Table{ID: "latency-" + w.id, First: "what", Columns: append(spread(), besideBare()), Last: "isolation"}
	chart := Chart{File: "latency-" + w.id + ".svg", Title: "Latency of " + plain(w.title) + ": median", Unit: UnitMS}
	bare := ms(times[s.peers[0]].median())
	for _, c := range s.peers {
		if m := times[c]; len(m) > 0 {
			t.Add(c.name, c.note, append(m.values(), over(ms(m.median()), bare))...)
			chart.AddBar(c.name, ms(m.median()), c.ours)
		}
	}
	sec.Tables = append(sec.Tables, t)
	sec.Charts = append(sec.Charts, chart)
	s.phaseTable(sec, w)
	s.noteWarm(sec)
	return nil
}

// phaseTable says where the time of the server's runs went.
func (s *session) phaseTable(sec *Section, w workload) {
	if s.server == nil {
		return
	}
	t := &Table{
		ID: "phases-" + w.id, Title: "Where the server's time goes, medians (the sandbox is destroyed after the answer):", First: "what",
		Columns: []Column{{"queue_ms", "queue", UnitMS}, {"create_ms", "create", UnitMS}, {"exec_ms", "exec", UnitMS}, {"collect_ms", "collect", UnitMS}},
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for _, name := range []string{serverRun, serverRunWarm} {
		all := s.server.phases[name+" "+w.id]
		if len(all) == 0 {
			continue
		}
		median := func(of func(sandbox.Timings) float64) float64 {
			var d sample
			for _, x := range all {
				d = append(d, time.Duration(of(x)*float64(time.Millisecond)))
			}
			return float64(d.median()) / float64(time.Millisecond)
		}
		t.Add(name, "",
			median(func(x sandbox.Timings) float64 { return x.QueueMS }), median(func(x sandbox.Timings) float64 { return x.CreateMS }),
			median(func(x sandbox.Timings) float64 { return x.ExecMS }), median(func(x sandbox.Timings) float64 { return x.CollectMS }))
	}
	if len(t.Rows) > 0 {
		sec.Tables = append(sec.Tables, t)
	}
}
