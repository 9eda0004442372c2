package fake

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Machine is one machine of memory.
type Machine struct {
	Plan   driver.Plan
	Files  *Files
	script Script
	stub   *stub // nil where the agent is there from the start
	born   time.Time

	ours, theirs net.Conn
	dial         sync.Once
	dialled      atomic.Bool
	agent        sync.WaitGroup // the agent and its programs
	dead         chan struct{}

	destroying sync.Mutex // held by Destroy
	mu         sync.Mutex
	death      driver.Death
	destroyed  bool
	paused     chan struct{} // closed by the end of the pause; nil: it is not paused
	ended      bool          // death is known
	doors      *doors        // nil until they are taken
}

func newMachine(plan driver.Plan, s Script) *Machine {
	m := &Machine{Plan: plan, Files: newFiles(), script: s, born: time.Now(), dead: make(chan struct{})}
	m.ours, m.theirs = net.Pipe()
	serve := s.Agent
	if serve == nil {
		serve = func(conn net.Conn) { newAgent(m, conn).serve() }
	}
	m.agent.Go(func() {
		serve(m.theirs)
		_ = m.theirs.Close()
	})
	return m
}

// Dial returns the connection to the agent, once.
func (m *Machine) Dial(context.Context) (conn driver.Conn, err error) {
	err = errors.New("fake: the connection to the agent was taken before")
	m.dial.Do(func() {
		m.dialled.Store(true)
		conn, err = m.ours, nil
	})
	return conn, err
}

// Usage reads the scripted counters.
func (m *Machine) Usage(ctx context.Context) (driver.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return driver.Usage{}, context.Cause(ctx)
	case m.ended:
		return driver.Usage{}, driver.ErrEnded
	}
	return m.reading(), nil
}

// reading is Usage, by who holds the lock.
func (m *Machine) reading() driver.Usage {
	if m.script.Usage == nil {
		return driver.Usage{}
	}
	return m.script.Usage(time.Since(m.born))
}

// Abilities implements driver.Machine.
func (m *Machine) Abilities() driver.MachineAbilities {
	a := driver.MachineAbilities{Pauser: m, Snapshotter: m}
	if m.script.NoPause {
		a.Pauser = nil
	}
	if m.script.NoSnapshot {
		a.Snapshotter = nil
	}
	if m.stub != nil {
		a.InitStub = m
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.Plan.Doors) > 0 {
		a.Doors = m
	} else if !m.script.NoLateDoors {
		a.LateDoors = m
	}
	return a
}

// Dead is closed when the machine has ended.
func (m *Machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended.
func (m *Machine) Death() driver.Death {
	<-m.dead
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.death
}

// Die ends the machine as its kernel would: with all its programs, without
// anybody's wish. A machine that is dead stays as it is.
func (m *Machine) Die(d driver.Death) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.dead:
		return
	default:
	}
	d.Usage = m.reading()
	m.ended, m.death = true, d
	close(m.dead)
	_ = m.theirs.Close()
	_ = m.ours.Close()
}

// Destroy ends the machine and waits for its programs.
func (m *Machine) Destroy(context.Context) error {
	m.destroying.Lock()
	defer m.destroying.Unlock()
	if m.gone() {
		return nil
	}
	m.Die(driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"})
	m.agent.Wait()
	if m.script.Destroy != nil {
		if err := m.script.Destroy(); err != nil {
			return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "cannot destroy the sandbox: " + err.Error(), Err: err}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.destroyed = true
	return nil
}

func (m *Machine) gone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.destroyed
}
