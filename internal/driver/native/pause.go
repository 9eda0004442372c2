//go:build linux

package native

import (
	"context"
	"errors"
	"os"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Pause freezes the sandbox's cgroup, the agent included.
func (m *machine) Pause(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if m.hasEnded() {
		return driver.ErrEnded
	}
	ctx, cancel := context.WithTimeout(ctx, driver.PauseTimeout)
	defer cancel()
	err := m.cgroup.Freeze(ctx)
	switch {
	case m.hasEnded() || errors.Is(err, os.ErrClosed):
		return driver.ErrEnded
	case err != nil:
		return &sandbox.Error{
			Code: sandbox.CodeConflict, Message: "cannot pause the sandbox in time, so it goes on: " + err.Error(), Err: err,
			Hint: "a process may be in a call that the kernel does not interrupt: try again later",
		}
	}
	m.paused = true
	return nil
}

// Resume thaws the sandbox's cgroup.
func (m *machine) Resume(context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if m.hasEnded() {
		return driver.ErrEnded
	}
	if err := m.cgroup.Thaw(); err != nil {
		return setupError("resume the sandbox", err)
	}
	m.paused = false
	return nil
}

// Paused implements driver.Pauser.
func (m *machine) Paused(context.Context) (bool, error) {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if m.hasEnded() {
		return false, driver.ErrEnded
	}
	return m.paused, nil
}

func (m *machine) hasEnded() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}
