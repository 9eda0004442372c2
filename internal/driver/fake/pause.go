package fake

import (
	"context"

	"pinfold/internal/driver"
)

// Pause keeps the agent from hearing and saying anything, and programs from sleeping on:
// what their scripts do beyond that nobody can stop.
func (m *Machine) Pause(ctx context.Context) error {
	if m.script.Pause != nil {
		if err := m.script.Pause(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return driver.ErrEnded
	}
	if m.paused == nil {
		m.paused = make(chan struct{})
	}
	return nil
}

// Resume ends the pause.
func (m *Machine) Resume(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return driver.ErrEnded
	}
	if m.paused != nil {
		close(m.paused)
		m.paused = nil
	}
	return nil
}

// Paused implements driver.Pauser.
func (m *Machine) Paused(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false, driver.ErrEnded
	}
	return m.paused != nil, nil
}

// stand waits for as long as the machine is paused and lives.
func (m *Machine) stand() {
	m.mu.Lock()
	paused := m.paused
	m.mu.Unlock()
	if paused == nil {
		return
	}
	select {
	case <-paused:
	case <-m.dead:
	}
}
