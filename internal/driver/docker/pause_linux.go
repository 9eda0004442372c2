package docker

import (
	"cmp"
	"context"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
)

// Pause has the engine freeze the container, the agent included.
func (m *machine) Pause(ctx context.Context) error {
	return m.pause(ctx, true)
}

// Resume has the engine let the container go on.
func (m *machine) Resume(ctx context.Context) error {
	return m.pause(ctx, false)
}

// pause makes the container paused or not, and returns when the kernel says so. What it is
// already it stays. What the engine says of that comes late: it hears of it as of any event,
// and may refuse to pause what it believes to be paused still. And the runtime gives up soon
// where processes are made all the time. So it is asked again, as long as there is time.
func (m *machine) pause(ctx context.Context, want bool) error {
	m.pausing.Lock()
	defer m.pausing.Unlock()
	engine, err := m.driver.engine()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, driver.PauseTimeout)
	defer cancel()
	if err = m.bring(within, engine, want); err == nil {
		return nil
	}
	switch {
	case m.hasEnded():
		return driver.ErrEnded
	case !want:
		return failed("resume the container", err)
	}
	m.undoPause(ctx)
	return failed("pause the container in time, so it goes on", err)
}

// bring asks the engine until the container is as it is wanted.
func (m *machine) bring(ctx context.Context, engine *client.Client, want bool) error {
	for {
		is, err := m.Paused(ctx)
		if err != nil || is == want {
			return err
		}
		if want {
			_, err = engine.ContainerPause(ctx, m.Container, client.ContainerPauseOptions{})
		} else {
			_, err = engine.ContainerUnpause(ctx, m.Container, client.ContainerUnpauseOptions{})
		}
		if m.hasEnded() || err != nil && !cerrdefs.IsInternal(err) && !cerrdefs.IsConflict(err) {
			return err
		}
		if err == nil {
			if is, err := m.Paused(ctx); err != nil || is == want {
				return err
			}
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return cmp.Or(err, context.Cause(ctx))
		}
	}
}

// askAgain is between two askings.
const askAgain = 50 * time.Millisecond

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

// Paused says what the kernel does; where that cannot be seen, what the engine says.
func (m *machine) Paused(ctx context.Context) (bool, error) {
	if m.hasEnded() {
		return false, driver.ErrEnded
	}
	if m.meter.Group != nil {
		is, known, err := m.meter.Group.StandsStill()
		switch {
		case known && cgroup.Gone(err):
			return false, driver.ErrEnded
		case known && err == nil:
			return is, nil
		}
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
