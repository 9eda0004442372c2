//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/initstub"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// # The init stub
//
// Process 1 of a machine whose program is forked is not the agent but an init stub, a tiny
// program (package initstub) that becomes the agent when the host first needs it: most
// forked runs never do. It is made by the same table, so all that holds for the agent
// holds for it, and it is nobody's to signal or look into but root's in there.
//
// The agent is several tasks and some memory, for which there must be room. A
// guest that runs may take any room that is made, the moment it is made. So the
// agent starts before the program is handed over, or after KillGuest.

// agentRoom is memory for an agent that starts where the guest's processes have
// gone, but may have left something that is charged as memory.
const agentRoom = 16 << 20

// initStub is what the host knows of the init stub. It is zero where the agent is process 1
// from the start.
type initStub struct {
	mu     sync.Mutex
	waits  bool  // it is process 1
	killed bool  // it has killed the guest
	broken error // it did not do what it was asked to
}

var errNoInitStub = errors.New("native: the sandbox's agent runs")

// ownTasks is how many tasks of the sandbox are not the guest's. A zygote's child
// is made by an intermediate process, which enters the sandbox and then ends.
func (m *machine) ownTasks() int64 {
	if m.zygote != nil {
		return initstub.Tasks + 1
	}
	return wire.MaxTasks
}

// useInitStub has the machine begin with an init stub, if its program is forked.
func (m *machine) useInitStub(n *initSpec) error {
	if m.zygote == nil {
		return nil
	}
	h := m.host
	h.initStubOnce.Do(func() { h.initStub, h.initStubErr = memfd.Sealed("pinfold-initstub", initstub.Program()) })
	if h.initStubErr != nil {
		return h.initStubErr
	}
	n.initStub, m.stub.waits, m.meter.agent = int(h.initStub.Fd()), true, initstub.Tasks
	return nil
}

// KillGuest implements driver.InitStub.
func (m *machine) KillGuest(ctx context.Context) error {
	s := &m.stub
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.waits:
		return errNoInitStub
	case s.broken == nil && !s.killed:
		if err := m.askToKill(ctx); err != nil {
			s.broken = m.orDeath("end the sandbox's processes", err)
		}
		s.killed = s.broken == nil
	}
	return s.broken
}

// askToKill asks the init stub to kill all other processes. An answer that comes too late would
// be taken for something else, so after an error nothing more can be asked.
func (m *machine) askToKill(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.conn.SetReadDeadline(time.Unix(1, 0)) })
	b := []byte{initstub.KillGuest}
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
	case b[0] != initstub.KillGuest:
		return fmt.Errorf("process 1 answered %#x", b[0])
	}
	return nil
}

// startAgent has the init stub become the agent.
func (m *machine) startAgent() error {
	s := &m.stub
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.waits:
		return nil
	case s.broken != nil:
		return s.broken
	}
	s.waits = false
	err := m.makeRoom(s.killed)
	if err == nil {
		_, err = m.conn.Write([]byte{initstub.BecomeAgent})
	}
	if err != nil {
		return m.orDeath("start the sandbox's agent", err)
	}
	return nil
}

// makeRoom raises the limits by what the agent needs. Memory it needs only where
// the guest has had the time to fill it.
func (m *machine) makeRoom(killed bool) error {
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
	if killed && m.plan.Enforces(sandbox.FeatureMemory) {
		return m.cgroup.SetMemoryLimit(m.cgroup.MemoryLimit() + agentRoom)
	}
	return nil
}

// limitsTasks says whether the machine's cgroup limits its tasks.
func (m *machine) limitsTasks() bool {
	return m.plan.Enforces(sandbox.FeatureProcesses) && m.host.can(cgroup.Pids)
}

// keepTasksPeak notes how many tasks the guest has had at most, while the init
// stub is all that is to be taken off.
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
