package engine

import (
	"context"
	"fmt"
	"time"

	"pinfold/internal/driver"
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
			if !s.judge(u) || s.rest() {
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

// judge acts on one reading. It says whether the sandbox goes on.
func (s *Sandbox) judge(u driver.Usage) bool {
	l := s.info.Limits
	e := evidence{limits: l, usage: u}
	var cause *sandbox.Cause
	switch cpu := u.CPUNanos / 1e6; {
	case l.CPUTimeMS > 0 && cpu >= l.CPUTimeMS:
		c := e.limitCause(sandbox.CauseCPUTime, cpu, fmt.Sprintf("its processes used %dms of CPU", cpu))
		cause = &c
	case u.OOMKills > 0 && !s.session.plan.KillOne: // else its process says so itself
		c := e.memoryCause()
		cause = &c
	case u.MemoryBytes > l.MemoryBytes:
		c := e.limitCause(sandbox.CauseMemory, u.MemoryBytes, fmt.Sprintf("%d bytes of memory in use", u.MemoryBytes))
		cause = &c
	}
	if cause != nil {
		s.endFor(*cause)
		return false
	}
	s.judgeForks(u, e)
	return true
}

// judgeForks ends all processes of a flood of forks. The sandbox itself stays
// usable.
func (s *Sandbox) judgeForks(u driver.Usage, e evidence) {
	if !s.forks.flood(time.Now(), u, s.info.Limits.Processes) {
		return
	}
	s.forks = forkJudge{}
	t := e.flood()
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
		s.endFor(e.refusal(sandbox.CauseProcesses))
	}
}
