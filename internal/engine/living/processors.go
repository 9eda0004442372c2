package living

// occupy gives a process its processors: those of the others in its sandbox, or, for
// the first, those of the host that the fewest sandboxes use. vacate follows.
func (s *Sandbox) occupy() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started++; s.started == 1 {
		s.cpus = s.manager.processors.Take(s.machine.Plan.Processors, s.machine.Plan.Limits.CPUs)
	}
	return s.cpus
}

// vacate says that a process has ended.
func (s *Sandbox) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started--; s.started == 0 {
		s.manager.processors.Give(s.cpus)
		s.cpus = nil
	}
}
