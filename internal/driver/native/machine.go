//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// destroyTimeout bounds how long Destroy waits for the kernel to finish.
const destroyTimeout = 10 * time.Second

// endsByItself is how long a sandbox may take to end after its first process was
// killed, before the host kills each process and takes the limits off.
const endsByItself = 50 * time.Millisecond

// machine is one native sandbox.
type machine struct {
	plan   driver.Plan
	host   *host
	shown  *shown
	spawn  spawnConfig
	zygote *zygoteMachine // of the process that was forked into it; nil for none
	seen   sandbox.Limits // what programs find in /proc and /sys
	inside *inside        // nil before the start

	block    *idblock.Block  // nil when not root
	cgroup   *cgroup.Group   // nil without usable cgroups
	entries  []int           // ways into the cgroup, until everybody is in it
	child    *spawn.Child    // nil before the start
	listener *listener       // nil when the filter does not listen
	prepared *preparedMounts // nil when few live
	counted  bool            // by the host's prepared mounts
	entered  bool            // what it is made from is open

	doors []int // the descriptors of listeners, until they are taken; guarded by mu

	childListener *listener // of the filter of the process that was forked into it

	overdue  overdue
	connOnce sync.Once
	dialled  atomic.Bool // somebody reads what the agent says
	conn     *unixpair.Channel
	stub     initStub

	dead  chan struct{}
	meter meter

	pausing sync.Mutex // held by Pause, Resume and Paused
	paused  bool

	death driver.Death // valid once dead is closed

	mu        sync.Mutex // held by Destroy and TakeDoors
	destroyed bool       // nothing is left
}

// spawnConfig is how a machine's first process is made.
type spawnConfig struct {
	namespaces uint64
	socket     int // type of the connection
	below      *spawn.Below
	program    func(*initSpec) *spawn.Program
	leased     func() // the ids are known now
}

// newMachine returns a machine that is to have the agent as its first process.
func (d *Driver) newMachine(plan driver.Plan, h *host) *machine {
	m := &machine{plan: plan, host: h, shown: h.shows(plan.Template), seen: plan.Limits, dead: make(chan struct{})}
	m.meter = meter{machine: m, root: -1, agent: wire.MaxTasks}
	m.spawn = spawnConfig{namespaces: namespaces, socket: unix.SOCK_STREAM, program: (*initSpec).program, leased: func() {}}
	return m
}

// Usage reads the counters.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) { return m.meter.read(ctx) }

// Abilities implements driver.Machine.
func (m *machine) Abilities() driver.MachineAbilities {
	a := driver.MachineAbilities{Looker: m, InitStub: m, Discarder: m, RunMeter: m, TaskMeter: m}
	if m.cgroup != nil && m.cgroup.CanFreeze() {
		a.Pauser, a.Snapshotter = m, m
	}
	if len(m.plan.Doors) > 0 {
		a.Doors = m
	} else if lateDoors(m.host.agentDoors) {
		a.LateDoors = m
	}
	return a
}

// Discard implements driver.Discarder.
func (m *machine) Discard() { m.meter.discard() }

// Dial returns the connection to the agent, once. An init stub becomes the agent.
func (m *machine) Dial(context.Context) (conn driver.Conn, err error) {
	err = errors.New("native: the connection to the agent was taken before")
	m.connOnce.Do(func() {
		if err = m.startAgent(); err == nil {
			m.conn.Ended = m.child.StayAwake
			m.dialled.Store(true)
			conn = told{m.conn, &m.meter}
		}
	})
	return conn, err
}

// Dead is closed when the sandbox's first process has ended, and with it, by
// the rules of pid namespaces, every other one.
func (m *machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended, once Dead is closed.
func (m *machine) Death() driver.Death {
	<-m.dead
	d := m.death
	d.Usage = m.meter.final()
	return d
}

// watch waits for the end of the first process. The kernel reports it only
// after all others of the pid namespace are gone.
func (m *machine) watch() {
	child := m.child
	go func() {
		status := child.Wait()
		m.meter.finish()
		m.death = m.explain(child.PID, status)
		close(m.dead)
	}()
}

// explain decides from the kernel's counters how the machine ended.
func (m *machine) explain(pid int, status syscall.WaitStatus) driver.Death {
	kills, asked := m.meter.verdict()
	how := fmt.Sprintf("exit status %d", status.ExitStatus())
	if status.Signaled() {
		how = "signal " + status.Signal().String()
	}
	switch {
	case kills > 0:
		return driver.Death{Kind: driver.DeathMemory, Evidence: fmt.Sprintf("the kernel's out-of-memory killer ended %d process(es)", kills)}
	case asked:
		return driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"}
	case m.zygote != nil && m.zygote.endedFirst():
		return driver.Death{Kind: driver.DeathAgent, Evidence: "the interpreter from which the sandbox's program was forked ended, and all that were forked from it"}
	}
	return driver.Death{Kind: driver.DeathAgent, Evidence: fmt.Sprintf("the sandbox's first process (host pid %d) ended by itself: %s", pid, how)}
}

// Destroy ends every process of the sandbox and removes its cgroup and its
// leases. Namespaces and mounts end with the processes.
func (m *machine) Destroy(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.destroyed {
		return nil
	}
	err := m.destroy(ctx)
	if err != nil {
		m.host.undestroyed.Store(m, nil)
	} else {
		m.host.undestroyed.Delete(m)
	}
	return err
}

// destroy is Destroy, by who holds the lock.
func (m *machine) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if err := m.endProcesses(ctx); err != nil {
		return err
	}
	failpoint.Hit("native.killed")
	if m.conn != nil {
		_ = m.conn.Close()
	}
	for _, l := range []*listener{m.listener, m.childListener} {
		if l != nil {
			l.close()
		}
	}
	m.closeDoors()
	m.overdue.stop()
	m.meter.close()
	m.closeEntries() // of a child that never came
	if m.child != nil {
		m.child.Release()
	}
	if m.cgroup != nil {
		if err := m.cgroup.Remove(ctx); err != nil {
			return setupError("remove the sandbox's cgroup", err)
		}
	}
	failpoint.Hit("native.uncgrouped")
	if m.block != nil {
		if err := m.block.Release(); err != nil {
			return setupError("give back the sandbox's user ids", err)
		}
	}
	if m.entered {
		m.shown.leave()
		m.entered = false
	}
	if m.counted {
		m.shown.prepared.give(m.prepared)
	}
	m.destroyed = true
	failpoint.Hit("native.destroyed")
	return nil
}

// endProcesses kills the first process of the pid namespace. The kernel then
// kills all the others and reports the first one's end only after theirs.
func (m *machine) endProcesses(ctx context.Context) error {
	if m.child == nil {
		return nil
	}
	select {
	case <-m.dead:
		return nil
	default:
	}
	m.meter.ending.Store(true) // the meter's lock comes after the kill: a reading may take long
	if err := m.child.Kill(); err != nil {
		return setupError("kill the sandbox's processes", err)
	}
	if m.zygote != nil { // which collects the child
		defer time.AfterFunc(reapTimeout, m.zygote.kill).Stop()
	}
	select {
	case <-m.dead:
		return nil
	case <-time.After(endsByItself):
	}
	return m.endAtLimits(ctx)
}

// endAtLimits ends a sandbox that does not end by itself. Its first process must
// run to kill all others, and they must run to end; at the sandbox's limits there
// is neither time nor memory for that.
func (m *machine) endAtLimits(ctx context.Context) error {
	var killErr error
	if m.cgroup != nil {
		killErr = m.cgroup.Kill(ctx)
	}
	select {
	case <-m.dead:
		return nil
	case <-ctx.Done():
		return setupError("end the sandbox's processes in time", errors.Join(ctx.Err(), killErr))
	}
}
