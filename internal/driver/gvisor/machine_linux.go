package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/layers"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
)

// destroyTimeout bounds how long Destroy waits for the kernel to finish.
const destroyTimeout = 10 * time.Second

// endsByItself is how long a sandbox may take to end after its first process was killed,
// before each process is killed and the limits are taken off.
const endsByItself = 100 * time.Millisecond

// machine is one runsc and all that it starts.
type machine struct {
	plan   driver.Plan
	common *common

	layers *layers.Layers // held while the machine is there; nil before, as all of these
	block  *idblock.Block
	group  *cgroup.Group
	child  *spawn.Child // runsc
	conn   *unixpair.Channel
	root   *os.File // O_PATH, of what runsc has as its root
	disk   *os.File // O_PATH
	meter  container.Meter

	dialled atomic.Bool
	asked   atomic.Bool   // Destroy has begun
	dead    chan struct{} // closed when runsc has ended, and so all others
	death   driver.Death  // valid once dead is closed

	pausing sync.Mutex // held by Pause and Resume
	paused  atomic.Bool

	mu        sync.Mutex // held by Destroy
	destroyed bool
}

// Dial returns the connection to the agent, once.
func (m *machine) Dial(context.Context) (driver.Conn, error) {
	if m.dialled.Swap(true) {
		return nil, errors.New("gvisor: the connection to the agent was taken before")
	}
	return told{m.conn, &m.meter}, nil
}

// told is the connection to the agent. Whatever is asked of it, the machine's clock starts.
type told struct {
	*unixpair.Channel
	meter *container.Meter
}

// Write starts the clock before it sends.
func (c told) Write(b []byte) (int, error) {
	c.meter.SentToAgent(len(b))
	return c.Channel.Write(b)
}

// TryWrite does so, too.
func (c told) TryWrite(b []byte) int {
	c.meter.SentToAgent(len(b))
	return c.Channel.TryWrite(b)
}

// Usage reads the counters.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) { return m.meter.Read(ctx) }

// BeginRun implements driver.RunMeter.
func (m *machine) BeginRun(ctx context.Context) (driver.Usage, error) { return m.meter.BeginRun(ctx) }

// EndRun implements driver.RunMeter.
func (m *machine) EndRun(ctx context.Context) (driver.Usage, error) { return m.meter.EndRun(ctx) }

// Abilities implements driver.Machine.
func (m *machine) Abilities() driver.MachineAbilities {
	return driver.MachineAbilities{RunMeter: m, Pauser: m, Snapshotter: m, AgentDoors: true}
}

// Dead is closed when runsc has ended: process 1 of a pid namespace that holds all others.
func (m *machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended, once Dead is closed.
func (m *machine) Death() driver.Death {
	<-m.dead
	d := m.death
	d.Usage = m.meter.Final()
	return d
}

// watch waits for the end of runsc.
func (m *machine) watch() {
	child := m.child
	go func() {
		status := child.Wait()
		m.meter.End()
		m.death = m.explain(child.PID, status)
		close(m.dead)
	}()
}

// explain decides from the kernel's counters how the machine ended.
func (m *machine) explain(pid int, status syscall.WaitStatus) driver.Death {
	how := fmt.Sprintf("exit status %d", status.ExitStatus())
	if status.Signaled() {
		how = "signal " + status.Signal().String()
	}
	switch kills := m.meter.Final().OOMKills; {
	case kills > 0:
		return driver.Death{Kind: driver.DeathMemory, Evidence: fmt.Sprintf("the kernel's out-of-memory killer ended %d process(es) of the sandbox's kernel", kills)}
	case m.asked.Load():
		return driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"}
	}
	return driver.Death{Kind: driver.DeathAgent, Evidence: fmt.Sprintf("runsc (host pid %d) ended by itself, and with it the sandbox's kernel and agent: %s", pid, how)}
}

// Destroy ends all processes and removes what there is on the host. Namespaces and mounts
// end with the processes.
func (m *machine) Destroy(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.destroyed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if err := m.end(ctx); err != nil {
		return err
	}
	failpoint.Hit("gvisor.killed")
	if m.conn != nil {
		_ = m.conn.Close()
	}
	for _, f := range []*os.File{m.root, m.disk} {
		if f != nil {
			_ = f.Close()
		}
	}
	if m.child != nil {
		m.child.Release()
	}
	if m.group != nil {
		if err := m.group.Remove(ctx); err != nil {
			return failure.Of("remove the sandbox's control group", err)
		}
	}
	failpoint.Hit("gvisor.uncgrouped")
	if m.block != nil {
		if err := m.block.Release(); err != nil {
			return failure.Of("give back the sandbox's user ids", err)
		}
	}
	if m.layers != nil {
		m.layers.Close()
	}
	m.destroyed = true
	return nil
}

// end kills runsc. The kernel then kills all others of its pid namespace, and reports its
// end only after theirs.
func (m *machine) end(ctx context.Context) error {
	if m.child == nil {
		return nil
	}
	if !m.asked.Load() {
		select {
		case <-m.dead: // by itself
		default:
			if !m.paused.Load() {
				m.meter.LastTelling()
			}
			m.asked.Store(true)
		}
	}
	if err := m.child.Kill(); err != nil {
		return failure.Of("kill the sandbox's processes", err)
	}
	select {
	case <-m.dead:
		return nil
	case <-time.After(endsByItself):
	}
	killErr := m.group.Kill(ctx)
	select {
	case <-m.dead:
		return nil
	case <-ctx.Done():
		return failure.Of("end the sandbox's processes in time", errors.Join(ctx.Err(), killErr))
	}
}

// shows says whether a machine shows one of the files that the limits make.
func shows(path string) bool {
	return strings.HasPrefix(path, "/sys/") || slices.Contains(shownFiles, path)
}
