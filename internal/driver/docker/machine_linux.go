package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	enginecontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/wire/resume"
	"pinfold/sandbox"
)

// Dial begins a stream to the agent, which ends the one before.
func (m *machine) Dial(ctx context.Context) (driver.Conn, error) {
	conn, err := resume.Dial(ctx, m.Secret, m.dead, func(ctx context.Context) (io.ReadWriteCloser, error) {
		return new(net.Dialer).DialContext(ctx, "unix", m.socket())
	})
	if err != nil {
		return nil, err
	}
	return told{conn, &m.meter}, nil
}

// told is the stream to the agent. Whatever is asked of it, the machine's clock starts.
type told struct {
	driver.Conn
	meter *container.Meter
}

// Write starts the clock before it sends.
func (c told) Write(b []byte) (int, error) {
	c.meter.SentToAgent(len(b))
	return c.Conn.Write(b)
}

func (m *machine) socket() string  { return filepath.Join(m.dir, socket) }
func (m *machine) profile() string { return filepath.Join(m.dir, profile) }

// Usage reads the counters of the container's control group.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) { return m.meter.Read(ctx) }

// Dead is closed when the container's first process has ended.
func (m *machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended.
func (m *machine) Death() driver.Death {
	<-m.dead
	d := m.death
	d.Usage = m.meter.Final()
	return d
}

// Abilities says that the agent may be dialled again, that there is a mark of memory, and
// that the machine can be paused.
func (m *machine) Abilities() driver.MachineAbilities {
	return driver.MachineAbilities{Redial: true, RunMeter: m, TaskMeter: m, Pauser: m, Snapshotter: m, AgentDoors: true}
}

// watch waits for the container's end.
func (m *machine) watch() error {
	ended, err := m.Agent.await()
	if err != nil {
		return err
	}
	go func() {
		<-ended
		m.meter.End()
		m.death = m.autopsy()
		close(m.dead)
	}()
	return nil
}

// autopsyTimeout bounds how long the engine may take to say why a container ended.
const autopsyTimeout = 5 * time.Second

// autopsy says how it ended: by us, or as the engine and the counters say.
func (m *machine) autopsy() driver.Death {
	select {
	case <-m.destroying:
		return driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"}
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), autopsyTimeout)
	defer cancel()
	state, err := m.state(ctx)
	kills := m.meter.Final().OOMKills
	switch {
	case err == nil && state.OOMKilled || kills > 0:
		return driver.Death{Kind: driver.DeathMemory, Evidence: "the kernel's OOM killer acted in the container"}
	case err != nil:
		return driver.Death{Kind: driver.DeathAgent, Evidence: "the container's first process ended; the engine does not say how: " + sandbox.SafeText(err.Error(), 200)}
	}
	return driver.Death{Kind: driver.DeathAgent, Evidence: fmt.Sprintf("the container's first process ended with status %d", state.ExitCode)}
}

// state is the container's, after its end.
func (m *machine) state(ctx context.Context) (*enginecontainer.State, error) {
	engine, err := m.driver.engine()
	if err != nil {
		return nil, err
	}
	waiting := engine.ContainerWait(ctx, m.Container, client.ContainerWaitOptions{Condition: enginecontainer.WaitConditionNotRunning})
	select {
	case <-waiting.Result:
	case err := <-waiting.Error:
		return nil, err
	}
	found, err := engine.ContainerInspect(ctx, m.Container, client.ContainerInspectOptions{})
	if err == nil && found.Container.State == nil {
		err = errors.New("it has no state")
	}
	return found.Container.State, err
}

// Destroy removes the container and what is on the host for it.
func (m *machine) Destroy(ctx context.Context) error {
	m.meter.LastTelling()
	m.once.Do(func() { close(m.destroying) })
	return m.remove(ctx)
}

// destroyTimeout is for the end of a process that was killed.
const destroyTimeout = 10 * time.Second

// remove removes whatever there is of a machine: all or a part.
func (m *machine) remove(ctx context.Context) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	if _, err := os.Lstat(m.dir); errors.Is(err, os.ErrNotExist) {
		return m.awaitEnd()
	}
	if strings.HasPrefix(filepath.Base(m.dir), newPrefix) { // its name may be another's, and so the container
		return os.RemoveAll(m.dir)
	}
	if err := m.removeContainer(ctx); err != nil {
		return failed("remove the container", err)
	}
	if err := m.awaitEnd(); err != nil {
		return err
	}
	err := unix.Unmount(m.disk(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it was not mounted
		return failed("unmount the machine's disk", err)
	}
	if err := os.RemoveAll(m.dir); err != nil {
		return failed("remove the machine's directory", err)
	}
	return nil
}

// removeContainer has the engine end and remove the container, which may be gone, or not
// have been made. One that another caller is removing is waited for.
func (m *machine) removeContainer(ctx context.Context) error {
	engine, err := m.driver.engine()
	if err != nil {
		return err
	}
	ctx, cancel := asked(ctx)
	defer cancel()
	id := m.Container
	if id == "" { // it may have been made without our learning its id
		found, err := engine.ContainerInspect(ctx, name(m.Plan.ID), client.ContainerInspectOptions{})
		if cerrdefs.IsNotFound(err) || err == nil && found.Container.Config.Labels[labelState] != m.driver.o.StateDir {
			return nil
		}
		if err != nil {
			return err
		}
		id = found.Container.ID
	}
	for {
		_, err := engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || cerrdefs.IsNotFound(err):
			return nil
		case !cerrdefs.IsConflict(err) || !strings.Contains(err.Error(), "already in progress"):
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitEnd waits until the first process's end is known, where there was one.
func (m *machine) awaitEnd() error {
	if m.meter.Group == nil {
		return nil
	}
	select {
	case <-m.dead:
		return nil
	case <-time.After(destroyTimeout):
		return failed("end the container", os.ErrDeadlineExceeded)
	}
}

// save records the machine, at once or not at all.
func (m *machine) save() error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	to := filepath.Join(m.dir, record)
	if err := os.WriteFile(to+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
