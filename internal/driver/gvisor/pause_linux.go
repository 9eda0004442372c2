package gvisor

import (
	"context"
	"errors"

	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
	"pinfold/sandbox"
)

// Pause has the sentry stop all that runs in it. That is the sentry's word: a control group
// that is frozen, as the native driver's, ended the agent in a good part of the sandboxes of
// systrap's, and so nobody does that.
func (m *machine) Pause(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	switch {
	case m.hasEnded():
		return driver.ErrEnded
	case m.paused.Load():
		return nil
	}
	within, cancel := context.WithTimeout(ctx, driver.PauseTimeout)
	defer cancel()
	m.paused.Store(true) // nobody is asked any more how many tasks there are
	err := m.tell(within, askPause)
	switch {
	case m.hasEnded():
		return driver.ErrEnded
	case err == nil:
		return nil
	case errors.Is(err, errUnasked): // and so is not told to undo it
		m.paused.Store(false)
	default:
		if undone := m.goOn(context.WithoutCancel(ctx)); undone != nil {
			err = errors.Join(err, undone)
		}
	}
	return &sandbox.Error{
		Code: sandbox.CodeConflict, Message: "cannot pause the sandbox in time, so it goes on: " + err.Error(), Err: err,
		Hint: "a process may be in a call that is not interrupted: try again later",
	}
}

// Resume has the sentry go on.
func (m *machine) Resume(ctx context.Context) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	switch {
	case m.hasEnded():
		return driver.ErrEnded
	case !m.paused.Load():
		return nil
	}
	if err := m.goOn(ctx); err != nil {
		if m.hasEnded() {
			return driver.ErrEnded
		}
		return failure.Of("resume the sandbox", err)
	}
	return nil
}

// goOn lets everything go on.
func (m *machine) goOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, driver.PauseTimeout)
	defer cancel()
	if err := m.tell(ctx, askResume); err != nil {
		return err
	}
	m.paused.Store(false)
	return nil
}

// tell has the sentry do something that has no result.
func (m *machine) tell(ctx context.Context, what string) error {
	return m.atSocket(func(socket string) error { return ask(ctx, socket, what, nil, nil) })
}

// Paused implements driver.Pauser.
func (m *machine) Paused(context.Context) (bool, error) {
	if m.hasEnded() {
		return false, driver.ErrEnded
	}
	return m.paused.Load(), nil
}

func (m *machine) hasEnded() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}
