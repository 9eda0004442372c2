//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/linux/sleeper"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// # Machines that sleep
//
// Process 1 of a fork's machine is not the agent but a tiny program (package
// sleeper), which becomes the agent when the host first needs it: most runs of
// forks never do. It is made by the same table, so all that holds for the agent
// holds for it, and it is nobody's to signal or look into but root's in there.
//
// The agent is several tasks and some memory, for which there must be room. A
// guest that runs may take any room that is made, the moment it is made. So the
// agent is woken before the program is handed over, or after EndGuest.

// agentRoom is memory for an agent that is woken where the guest's processes have
// gone, but may have left something that is charged as memory.
const agentRoom = 16 << 20

// sleep is what the host knows of the process that sleeps.
type sleep struct {
	mu     sync.Mutex
	asleep bool
	quiet  bool  // the guest has been ended
	broken error // it did not do what it was asked to
}

var errAwake = errors.New("native: the sandbox's agent does not sleep")

// ownTasks is how many tasks of the sandbox are not the guest's. A fork is made
// by one that enters the sandbox and then ends.
func (m *machine) ownTasks() int64 {
	if m.zygote != nil {
		return sleeper.Tasks + 1
	}
	return wire.MaxTasks
}

// layAsleep has the machine sleep, if its program comes by a fork.
func (m *machine) layAsleep(n *initSpec) error {
	if m.zygote == nil {
		return nil
	}
	h := m.host
	h.sleeperOnce.Do(func() { h.sleeper, h.sleeperErr = memfd.Sealed("pinfold-sleeper", sleeper.Program()) })
	if h.sleeperErr != nil {
		return h.sleeperErr
	}
	n.sleeper, m.sleep.asleep, m.meter.agent = int(h.sleeper.Fd()), true, sleeper.Tasks
	return nil
}

// EndGuest implements driver.Sleeper.
func (m *machine) EndGuest(ctx context.Context) error {
	s := &m.sleep
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.asleep:
		return errAwake
	case s.broken == nil && !s.quiet:
		if err := m.askToEnd(ctx); err != nil {
			s.broken = m.orDeath("end the sandbox's processes", err)
		}
		s.quiet = s.broken == nil
	}
	return s.broken
}

// askToEnd asks process 1 to end all others. An answer that comes too late would
// be taken for something else, so after an error nothing more can be asked.
func (m *machine) askToEnd(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.conn.SetReadDeadline(time.Unix(1, 0)) })
	b := []byte{sleeper.End}
	_, err := m.conn.Write(b)
	if err == nil {
		b[0] = 0
		_, err = m.conn.Read(b)
	}
	switch {
	case !stop():
		return context.Cause(ctx)
	case err != nil:
		return err
	case b[0] != sleeper.End:
		return fmt.Errorf("process 1 answered %#x", b[0])
	}
	return nil
}

// wake has the agent take the place of what sleeps.
func (m *machine) wake() error {
	s := &m.sleep
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.asleep:
		return nil
	case s.broken != nil:
		return s.broken
	}
	s.asleep = false
	err := m.makeRoom(s.quiet)
	if err == nil {
		_, err = m.conn.Write([]byte{sleeper.Wake})
	}
	if err != nil {
		return m.orDeath("wake the sandbox's agent", err)
	}
	return nil
}

// makeRoom raises the limits by what the agent needs. Memory it needs only where
// the guest has had the time to fill it.
func (m *machine) makeRoom(quiet bool) error {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.cgroup == nil {
		return nil
	}
	if m.limitsTasks() {
		t.keepTasksPeak()
		if err := m.cgroup.SetPidsLimit(m.plan.Limits.Processes + wire.MaxTasks); err != nil {
			return err
		}
	}
	if quiet && m.plan.Enforces(sandbox.FeatureMemory) {
		if err := m.cgroup.SetMemoryLimit(t.limit + agentRoom); err != nil {
			return err
		}
		t.limit += agentRoom
	}
	return nil
}

// limitsTasks says whether the machine's cgroup limits its tasks.
func (m *machine) limitsTasks() bool {
	return m.plan.Enforces(sandbox.FeatureProcesses) && m.host.can(cgroup.Pids)
}

// keepTasksPeak notes how many tasks the guest has had at most, while what sleeps
// is all that is to be taken off.
func (t *meter) keepTasksPeak() {
	if s, err := t.machine.cgroup.Peaks(); err == nil {
		t.last.ProcessesPeak = max(t.last.ProcessesPeak, s.TasksPeak-t.agent)
	}
}

// orDeath says that something failed, or that the machine had ended.
func (m *machine) orDeath(what string, err error) error {
	select {
	case <-m.dead:
		err = errors.New("the sandbox has ended: " + m.death.Evidence)
	case <-time.After(silentTimeout):
	}
	return setupError(what, err)
}
