//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/failpoint"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/seccomp"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
)

// destroyTimeout bounds how long Destroy waits for processes to end.
const destroyTimeout = 10 * time.Second

// endsByItself is how long a supervisor may take to end all others, before the host helps.
const endsByItself = time.Second

// machine is one supervisor and all that is below it.
type machine struct {
	driver *Driver
	plan   driver.Plan
	dir    string
	lock   *os.File       // held while we live; nil before the directory
	block  *idblock.Block // nil when not root
	uid    int            // of the sandbox's processes; -1: ours
	gid    int

	conn     *unixpair.Channel
	lifeline *os.File     // whose end has the supervisor end all
	child    *spawn.Child // the supervisor; nil before the start
	listener *seccomp.Listener
	served   chan struct{}
	meter    meter

	dialled atomic.Bool
	asked   atomic.Bool // Destroy has begun
	dead    chan struct{}
	death   driver.Death // valid once dead is closed

	mu        sync.Mutex // held by Destroy
	destroyed bool
}

// Dial returns the connection to the agent, once.
func (m *machine) Dial(context.Context) (driver.Conn, error) {
	if m.dialled.Swap(true) {
		return nil, errors.New("process: the connection to the agent was taken before")
	}
	return m.conn, nil
}

// Usage reads the counters.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) { return m.meter.read(ctx) }

// Dead is closed when the supervisor has ended, which it does after all others.
func (m *machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended, once Dead is closed.
func (m *machine) Death() driver.Death {
	<-m.dead
	d := m.death
	d.Usage = m.meter.final()
	return d
}

// BeginRun implements driver.RunMeter.
func (m *machine) BeginRun(ctx context.Context) (driver.Usage, error) { return m.meter.begin(ctx) }

// EndRun implements driver.RunMeter: whatever it costs, the disk is looked at.
func (m *machine) EndRun(ctx context.Context) (driver.Usage, error) { return m.meter.end(ctx) }

// Abilities implements driver.Machine. It cannot be paused: its processes have no control
// group, and a stop signal is seen by their parents and does not hold who forks meanwhile.
func (m *machine) Abilities() driver.MachineAbilities {
	return driver.MachineAbilities{RunMeter: m, TaskMeter: m}
}

// watch waits for the supervisor's end.
func (m *machine) watch() {
	child := m.child
	go func() {
		status := child.Wait()
		how := fmt.Sprintf("exit status %d", status.ExitStatus())
		if status.Signaled() { // whoever did it, others may be left
			how = "signal " + status.Signal().String()
			m.sweep()
		}
		m.meter.finish()
		m.death = driver.Death{Kind: driver.DeathAgent, Evidence: fmt.Sprintf("the sandbox's agent, or its supervisor (pid %d), ended by itself: %s", child.PID, how)}
		if m.asked.Load() {
			m.death = driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"}
		}
		close(m.dead)
	}()
}

// sweep ends what a supervisor has left behind that was killed: all that have the
// sandbox's user id, or what was seen last below it.
func (m *machine) sweep() {
	if m.uid >= 0 {
		killUser(m.uid, m.gid, destroyTimeout)
		return
	}
	m.meter.killSeen()
}

// Destroy ends every process of the machine and removes its directory.
func (m *machine) Destroy(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.destroyed {
		return nil
	}
	if err := m.end(ctx); err != nil {
		return err
	}
	failpoint.Hit("processdriver.killed")
	if m.conn != nil {
		_ = m.conn.Close()
	}
	if m.listener != nil {
		_ = m.listener.Close()
		<-m.served
	}
	m.meter.finish()
	if m.child != nil {
		m.child.Release()
	}
	if err := m.removePlaces(); err != nil {
		return failure.Of("remove the sandbox's directory", err)
	}
	failpoint.Hit("processdriver.removed")
	if m.block != nil {
		if err := m.block.Release(); err != nil {
			return failure.Of("give back the sandbox's user ids", err)
		}
	}
	m.destroyed = true
	return nil
}

// end has the supervisor end all, and helps where it does not.
func (m *machine) end(ctx context.Context) error {
	m.asked.Store(true)
	if m.lifeline != nil {
		_ = m.lifeline.Close()
	}
	if m.child == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	select {
	case <-m.dead:
		return nil
	case <-time.After(endsByItself):
	}
	if m.uid >= 0 {
		killUser(m.uid, m.gid, destroyTimeout) // which ends the supervisor as well
	} else {
		m.meter.killSeen()
		_ = m.child.Kill()
	}
	select {
	case <-m.dead:
		return nil
	case <-ctx.Done():
		return failure.Of("end the sandbox's processes in time", ctx.Err())
	}
}

// supervisorID is the real user id of a supervisor whose sandbox's programs have the user
// id uid, the effective one of both. So it may signal them, and they may not signal it:
// that goes by the sender's effective id, and the receiver's real and saved ones (kill(2)).
func supervisorID(uid int) int { return uid + 1 }

// killUser kills every process of a user id that is a sandbox's alone, and its supervisor.
// It is for root. Only a process with these ids can kill all of them at one moment, so that
// none can fork away.
func killUser(uid, gid int, timeout time.Duration) {
	for until := time.Now().Add(timeout); time.Now().Before(until); {
		p := spawn.New()
		p.Setresgid(gid)
		p.Call("set user", unix.SYS_SETRESUID, supervisorID(uid), uid, supervisorID(uid))
		p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		p.Optional("kill all", unix.SYS_KILL, -1, int(unix.SIGKILL))
		p.Call("end", unix.SYS_EXIT_GROUP, 0)
		if child, err := p.Start(spawn.Clone{}); err == nil && child.WaitExec() == nil { // there is none: it has come to the last step
			child.Wait()
			child.Release()
		}
		if idblock.NoProcess(idblock.BaseOf(uid)) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
