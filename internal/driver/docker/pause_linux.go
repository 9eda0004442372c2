package docker

import (
	"context"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"pinfold/internal/driver"
)

// Pause has the engine freeze the container, the agent included.
func (m *machine) Pause(ctx context.Context) error {
	return m.pause(ctx, true)
}

// Resume has the engine let the container go on.
func (m *machine) Resume(ctx context.Context) error {
	return m.pause(ctx, false)
}

// pause makes the container paused or not. What it is already it stays: the engine answers
// that with a conflict.
func (m *machine) pause(ctx context.Context, want bool) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	is, err := m.Paused(ctx)
	if err != nil || is == want {
		return err
	}
	engine, err := m.driver.engine()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, driver.PauseTimeout)
	defer cancel()
	if want {
		err = m.freeze(within, engine)
	} else {
		_, err = engine.ContainerUnpause(within, m.Container, client.ContainerUnpauseOptions{})
	}
	switch {
	case err == nil:
		return nil
	case m.hasEnded():
		return driver.ErrEnded
	case !want:
		return failed("resume the container", err)
	}
	m.undoPause(ctx)
	return failed("pause the container in time, so it goes on", err)
}

// freeze has the engine pause the container. The runtime gives up soon where processes are
// made all the time, and may have more luck the next time.
func (m *machine) freeze(ctx context.Context, engine *client.Client) error {
	for {
		_, err := engine.ContainerPause(ctx, m.Container, client.ContainerPauseOptions{})
		if !cerrdefs.IsInternal(err) || m.hasEnded() {
			return err
		}
		select {
		case <-time.After(freezePause):
		case <-ctx.Done():
			return err
		}
	}
}

// freezePause is between two tries.
const freezePause = 50 * time.Millisecond

// undoPause lets a container go on that the engine may have paused after we gave up.
func (m *machine) undoPause(ctx context.Context) {
	engine, err := m.driver.engine()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.PauseTimeout)
	defer cancel()
	_, _ = engine.ContainerUnpause(ctx, m.Container, client.ContainerUnpauseOptions{}) // it fails where nothing was paused
}

// Paused asks the engine.
func (m *machine) Paused(ctx context.Context) (bool, error) {
	if m.hasEnded() {
		return false, driver.ErrEnded
	}
	engine, err := m.driver.engine()
	if err != nil {
		return false, err
	}
	ctx, cancel := asked(ctx)
	defer cancel()
	found, err := engine.ContainerInspect(ctx, m.Container, client.ContainerInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err) || m.hasEnded():
		return false, driver.ErrEnded
	case err != nil:
		return false, failed("look at the container", err)
	}
	return found.Container.State != nil && found.Container.State.Paused, nil
}

func (m *machine) hasEnded() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}
