//go:build linux

package qemu

import (
	"context"
	"errors"

	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// Pause stops the machine: its processors, its devices and its clocks stand still. What
// its counters were is read before, since nobody in there can be asked then.
func (m *machine) Pause(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if m.hasEnded() {
		return driver.ErrEnded
	}
	if m.paused.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, driver.PauseTimeout)
	defer cancel()
	err := m.standStill(ctx)
	switch {
	case m.hasEnded() || m.process.hasEnded() || errors.Is(err, driver.ErrEnded):
		return driver.ErrEnded
	case err != nil:
		_, _ = m.process.monitor.command(context.WithoutCancel(ctx), "cont", nil)
		return &sandbox.Error{
			Code: sandbox.CodeConflict, Message: "cannot pause the virtual machine in time, so it goes on: " + err.Error(), Err: err,
			Hint: "try again later",
		}
	}
	return nil
}

// standStill stops the machine while nobody asks its first process anything: half of an
// answer would be in what is made of its snapshot.
func (m *machine) standStill(ctx context.Context) error {
	select {
	case m.pacing <- struct{}{}:
		defer func() { <-m.pacing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, err := m.reading(ctx, wardenwire.OpUsage); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Of a command that was begun the end is waited for: nobody could let the machine go on
	// whose monitor was left in the middle of an answer.
	if _, err := m.process.monitor.command(context.WithoutCancel(ctx), "stop", nil); err != nil {
		return err
	}
	m.paused.Store(true)
	return nil
}

// Resume lets the machine go on.
func (m *machine) Resume(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	if m.hasEnded() {
		return driver.ErrEnded
	}
	if !m.paused.Load() {
		return nil
	}
	if _, err := m.process.monitor.command(context.WithoutCancel(ctx), "cont", nil); err != nil {
		if m.process.hasEnded() {
			return driver.ErrEnded
		}
		return failure.Of("resume the virtual machine", err)
	}
	m.paused.Store(false)
	return nil
}

// Paused implements driver.Pauser.
func (m *machine) Paused(context.Context) (bool, error) {
	if m.hasEnded() {
		return false, driver.ErrEnded
	}
	return m.paused.Load(), nil
}
