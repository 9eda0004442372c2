package engine

import (
	"context"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/verdict"
	"pinfold/sandbox"
)

// slowestLivingReading is how seldom the counters of a living sandbox are read
// while its processes do nothing.
const slowestLivingReading = 250 * time.Millisecond

// watch sees to it that the counters are read as long as something goes on in
// the sandbox. An idle sandbox costs no time at all. The lock is held.
func (s *Sandbox) watch() {
	if s.watching {
		select {
		case s.wake <- struct{}{}: // read soon
		default:
		}
		return
	}
	s.watching = true
	s.engine.background.Go(s.watchLoop)
}

func (s *Sandbox) watchLoop() {
	pause := firstReading
	timer, due := time.NewTimer(pause), time.Now().Add(pause)
	defer timer.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-s.wake:
			pause = firstReading
		case <-timer.C:
			begun := time.Now()
			before := s.lastReading()
			u := s.read()
			if !s.act(u) || s.rest() {
				return
			}
			pause = s.nextPause(pause, before, u)
			pause = paced(pause, time.Since(begun), due, begun)
		}
		due = time.Now().Add(pause)
		timer.Reset(pause)
	}
}

func (s *Sandbox) lastReading() driver.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// rest stops the watch when nothing goes on. The reading that came before is
// the baseline for what starts next.
func (s *Sandbox) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.State == sandbox.StateRunning {
		if s.busy > 0 {
			return false
		}
		for _, p := range s.processes {
			if p.running() {
				return false
			}
		}
	}
	s.watching = false
	return true
}

// nextPause doubles the pause while nothing changes, and reads often when a
// limit is near.
func (s *Sandbox) nextPause(pause time.Duration, before, now driver.Usage) time.Duration {
	l := s.info.Limits
	switch {
	case near(now.MemoryBytes, l.MemoryBytes), near(now.DiskBytes, l.DiskBytes), near(now.Inodes, l.Inodes), now.DiskBytes > before.DiskBytes+diskStep:
		return fastestReading
	case now.CPUNanos > before.CPUNanos+int64(pause)/10, now.MemoryBytes != before.MemoryBytes, now.Processes != before.Processes:
		return slowestReading
	}
	return min(2*pause, slowestLivingReading)
}

// act acts on one reading. It says whether the sandbox goes on. Of a flood of forks
// all processes end, and the sandbox itself stays usable.
func (s *Sandbox) act(u driver.Usage) bool {
	if t := s.judge.Beyond(u); t != nil {
		s.endFor(verdict.Evidence{Limits: s.info.Limits}.LimitCause(t.Kind, t.Observed, t.Evidence))
		return false
	}
	t := s.judge.Flood(time.Now(), u)
	if t == nil {
		return true
	}
	s.mu.Lock()
	var running []*Process
	for _, p := range s.processes {
		if p.running() {
			running = append(running, p)
		}
	}
	s.mu.Unlock()
	for _, p := range running {
		p.stop(t)
	}
	if !s.session.endGuest(context.Background(), killTimeout) {
		s.endFor(verdict.Evidence{Limits: s.info.Limits, Usage: u}.Refusal(sandbox.CauseProcesses))
	}
	return true
}
