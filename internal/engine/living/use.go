package living

import (
	"sync"
	"time"

	"pinfold/sandbox"
)

// use says that an operation begins; what it returns says that it is over. As
// long as one is under way the sandbox is not idle.
func (s *Sandbox) use() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.still != nil && s.info.State == sandbox.StateRunning {
		still := s.still
		s.mu.Unlock()
		<-still
		s.mu.Lock()
	}
	if s.info.State != sandbox.StateRunning {
		return nil, s.notRunning()
	}
	s.asking++
	attended := s.attended()
	return sync.OnceFunc(func() {
		attended()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking--
	}), nil
}

// attend says that somebody waits for what a process does, also while the sandbox is
// paused: that is use, but asks nothing of the agent.
func (s *Sandbox) attend() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stays() {
		return nil, s.notRunning()
	}
	return s.attended(), nil
}

// attended counts who uses the sandbox, until what it returns is called. The lock is held.
func (s *Sandbox) attended() (done func()) {
	s.busy++
	if s.info.State == sandbox.StateRunning {
		s.watch()
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
		s.used = time.Now()
	})
}
