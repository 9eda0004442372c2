//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// machine is one virtual machine with a sandbox in it.
type machine struct {
	plan    driver.Plan
	process *process

	dialled atomic.Bool
	asked   atomic.Bool // Destroy has begun
	dead    chan struct{}
	death   driver.Death // valid once dead is closed

	pausing sync.Mutex // held by Pause and Resume
	paused  atomic.Bool

	pacing chan struct{} // has room for one, who guards next
	next   time.Time     // when a reading may begin

	base driver.Usage // what others had used of a memory with which it goes on

	mu   sync.Mutex // guards last
	last driver.Usage
}

// Create makes the machine.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	if err := refused(plan); err != nil {
		return nil, err
	}
	q, err := d.obtain(ctx, plan)
	if err != nil {
		return nil, createError(err)
	}
	return newMachine(plan, q, driver.Usage{}), nil
}

// newMachine returns the machine that a process is, and watches it.
func newMachine(plan driver.Plan, q *process, base driver.Usage) *machine {
	m := &machine{plan: plan, process: q, base: base, dead: make(chan struct{}), pacing: make(chan struct{}, 1)}
	go m.watch()
	return m
}

// refused says why there can be no machine of a plan.
func refused(plan driver.Plan) error {
	if len(plan.Mounts) > plan.Kept {
		return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "mounts", Message: "a virtual machine shows no directory of the host's"}).
			WithAdvice(sandbox.Advise("copy the files in, or take %s", sandbox.Set("driver", "native")))
	}
	return failure.NoDescriptors()
}

// createError says which step of making a sandbox failed.
func createError(err error) error {
	if step := new(spawn.StepError); errors.As(err, &step) {
		return failure.Of("start QEMU", err)
	}
	return failure.Of("make the sandbox", err)
}

// Dial returns the connection to the agent, once.
func (m *machine) Dial(context.Context) (driver.Conn, error) {
	if m.dialled.Swap(true) {
		return nil, errors.New("qemu: the connection to the agent was taken before")
	}
	return greeted{m.process.agent, &m.process.greeting}, nil
}

// Abilities implements driver.Machine.
func (m *machine) Abilities() driver.MachineAbilities {
	return driver.MachineAbilities{RunMeter: m, Pauser: m, MemorySnapshotter: m, AgentDoors: true}
}

// Dead is closed when the machine has ended.
func (m *machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended, once Dead is closed.
func (m *machine) Death() driver.Death {
	<-m.dead
	d := m.death
	m.mu.Lock()
	defer m.mu.Unlock()
	d.Usage = m.last
	return d
}

// watch waits for the end of the sandbox, or of the machine around it, whichever comes
// first, and ends both.
func (m *machine) watch() {
	q := m.process
	var told *driver.Death
	why := ""
	select {
	case d := <-q.link.Death():
		told = &d
	case <-q.link.Over():
		why = q.link.Err().Error()
	case <-q.ended:
	}
	if told == nil { // both may have come
		select {
		case d := <-q.link.Death():
			told = &d
		default:
		}
	}
	ended := q.hasEnded()
	q.kill()
	<-q.ended
	switch {
	case m.asked.Load():
		m.death = driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"}
	case told != nil:
		m.death = driver.Death{Kind: told.Kind, Evidence: "in the virtual machine: " + sandbox.SafeText(told.Evidence, 500)}
		m.note(told.Usage)
		if told.Kind != driver.DeathMemory {
			m.death.Kind = driver.DeathAgent
		}
	case q.kills > 0:
		m.death = driver.Death{Kind: driver.DeathMemory, Evidence: fmt.Sprintf("the host's out-of-memory killer ended QEMU, which had taken more than its machine has (%d)", q.kills)}
	case ended || why == wardenwire.ErrOver.Error():
		m.death = driver.Death{Kind: driver.DeathAgent, Evidence: "the virtual machine ended by itself: " + q.how()}
	default:
		m.death = driver.Death{Kind: driver.DeathAgent, Evidence: "the virtual machine's first process made no sense, and the machine was ended: " + why}
	}
	close(m.dead)
}

func (q *process) hasEnded() bool {
	select {
	case <-q.ended:
		return true
	default:
		return false
	}
}

func (m *machine) hasEnded() bool {
	select {
	case <-m.dead:
		return true
	default:
		return m.asked.Load()
	}
}

// Destroy ends the machine and removes its traces.
func (m *machine) Destroy(ctx context.Context) error {
	if !m.process.hasEnded() {
		m.asked.Store(true)
	}
	if err := m.process.remove(ctx); err != nil {
		return err
	}
	<-m.dead
	return nil
}
