package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// strainProgram strains what sandboxes share; its path is the same on the host and inside.
const strainProgram = "/usr/bin/stress-ng"

// strains are classes of its stressors. Left out of them is what needs more than a
// sandbox has: it would end the others early.
var strains = strings.Fields("os vm filesystem scheduler memory pipe io")

const strainWithout = "aiol,io-uring,rawdev,readahead,revio,sync-file"

// strained is a large sandbox that may have one processor.
func strained() sandbox.Create {
	return sandbox.Create{TTLMS: time.Hour.Milliseconds(), Limits: sandbox.Limits{
		MemoryBytes: 1 << 30, Processes: 256, DiskBytes: 512 << 20, FileSizeBytes: 512 << 20,
	}}
}

// neighbours measures runs while one sandbox strains the machine at its limits, beside the
// same runs while it does nothing.
func (s *session) neighbours() error {
	if s.server == nil {
		return nil // why is said already
	}
	name := serverRun
	if s.server.warm {
		name = serverRunWarm
	}
	sec, done := s.section("neighbours", "Neighbours: `print(1)` while another sandbox works at its limits",
		name+", one at a time. The other sandbox has one processor and goes through every stressor of a class of stress-ng's, all at once; when it ends, by a limit or by itself, another takes its place. \"Beside alone\" compares with the same number of runs just before, while it did nothing.")
	defer done()
	if !executable(strainProgram) {
		sec.Note("not measured: %s is not installed (apt-get install stress-ng)", strainProgram)
		return nil
	}
	t := &Table{ID: "neighbours", First: "class", Columns: []Column{
		{"alone_median_ms", "alone: median", UnitMS},
		{"alone_p99_ms", "p99", UnitMS},
		{"median_ms", "beside it: median", UnitMS},
		{"p99_ms", "p99", UnitMS},
		{"median_beside_alone", "median beside alone", UnitTimes},
		{"p99_beside_alone", "p99 beside alone", UnitTimes},
		{"ended", "sandboxes that ended", UnitCount},
	}}
	sec.Tables = append(sec.Tables, t)
	for _, class := range strains {
		s.o.Progress("neighbours: " + class)
		alone, err := s.runsBeside()
		if err != nil {
			return err
		}
		stop, err := s.strain(class)
		if err != nil {
			return err
		}
		beside, err := s.runsBeside()
		ended := stop()
		if err != nil {
			return fmt.Errorf("beside %s: %w", class, err)
		}
		a, b := ms(alone.at(0.99)), ms(beside.at(0.99))
		t.Add(class, "", ms(alone.median()), a, ms(beside.median()), b, over(ms(beside.median()), ms(alone.median())), over(b, a), float64(ended))
	}
	s.noteWarm(sec)
	return nil
}

// runsBeside measures runs one at a time, with what is used up made again between them.
func (s *session) runsBeside() (sample, error) {
	s.server.poolsFull(s.ctx, fillTimeout)
	var times sample
	for range 5 * s.o.Rounds { // 99 of a hundred want hundreds
		began := time.Now()
		if _, err := s.server.run(s.ctx, s.printing(), s.server.warm); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		s.server.settled(s.ctx)
	}
	return times, s.ctx.Err()
}

// strain begins to strain the machine; stop ends it, and says how many sandboxes ended
// meanwhile.
func (s *session) strain(class string) (stop func() (ended int), err error) {
	x, err := s.server.cl.Create(s.ctx, strained())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	over := make(chan int)
	go func() {
		ended := 0
		command := sandbox.Command{Args: []string{strainProgram, "--class", class, "--all", "1", "-x", strainWithout, "-t", "600s"}}
		for {
			_, _ = x.Exec(ctx, command, client.ExecOptions{}) // how it ends is the limits' affair
			destroy(x)
			if ctx.Err() != nil {
				break
			}
			ended++
			next, err := s.server.cl.Create(ctx, strained())
			if err != nil {
				break
			}
			x = next
		}
		over <- ended
	}()
	s.sleep(time.Second) // until all of its stressors are there
	return func() int { cancel(); return <-over }, nil
}
