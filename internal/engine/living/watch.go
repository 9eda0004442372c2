package living

import (
	"context"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/verdict"
	"pinfold/sandbox"
)

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
	s.manager.background.Go(s.watchLoop)
}

func (s *Sandbox) watchLoop() {
	s.machine.Watch(s.life, s.wake, func(u driver.Usage, pause time.Duration) (time.Duration, bool) {
		before := s.note(u)
		if !s.act(u) || s.rest() {
			return 0, false
		}
		return execution.LivingPause(pause, before, u, s.info.Limits), true
	})
}

// note keeps a reading and returns the one before.
func (s *Sandbox) note(u driver.Usage) (before driver.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.last = s.last, u
	return before
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

// act acts on one reading. It says whether the sandbox goes on. Of a flood of forks
// all processes end, and the sandbox itself stays usable.
func (s *Sandbox) act(u driver.Usage) bool {
	s.mu.Lock()
	still := s.still != nil
	s.mu.Unlock()
	if still { // and cannot do anything about it
		return true
	}
	if t := s.judge.Beyond(u); t != nil {
		s.endFor(verdict.Evidence{Limits: s.info.Limits}.LimitCause(t.Kind, t.Observed, t.Evidence))
		return false
	}
	t := s.judge.Flood(time.Now(), u, s.machine.Machine.Abilities().TaskMeter)
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
	if !s.machine.KillGuest(context.Background(), execution.KillTimeout) {
		s.endFor(verdict.Evidence{Limits: s.info.Limits, Usage: u}.Refusal(sandbox.CauseProcesses))
	}
	return true
}
