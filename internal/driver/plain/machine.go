//go:build linux

package plain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/wire/resume"
	"pinfold/sandbox"
)

// Dial begins a stream to the agent, which ends the one before.
func (m *machine) Dial(ctx context.Context) (driver.Conn, error) {
	return resume.Dial(ctx, m.Secret, m.dead, func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", m.socket())
		if err == nil && m.driver.o.Broken != nil {
			return m.driver.o.Broken(conn), nil
		}
		return conn, err
	})
}

// Usage reads nothing: there are no counters.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) {
	select {
	case <-m.dead:
		return driver.Usage{}, driver.ErrEnded
	default:
		return driver.Usage{}, context.Cause(ctx)
	}
}

// Dead is closed when the agent has ended, and with it all that it had started.
func (m *machine) Dead() <-chan struct{} { return m.dead }

// Death says how it ended.
func (m *machine) Death() driver.Death {
	<-m.dead
	return m.death
}

// Abilities says that the agent may be dialled again. It cannot be paused: its processes
// have no control group, and they would see a stop signal.
func (m *machine) Abilities() driver.MachineAbilities { return driver.MachineAbilities{Redial: true} }

// Destroy ends the agent and removes what is known of the machine.
func (m *machine) Destroy(context.Context) error {
	if m.lives() {
		select {
		case m.kill <- struct{}{}:
		default:
		}
		if err := syscall.Kill(m.Agent.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return failed("end the agent", err)
		}
		select {
		case <-m.dead:
		case <-time.After(destroyTimeout):
			return failed("end the agent", os.ErrDeadlineExceeded)
		}
	}
	if err := os.RemoveAll(m.dir); err != nil {
		return failed("remove the machine's directory", err)
	}
	return nil
}

const destroyTimeout = 10 * time.Second

func (m *machine) lives() bool {
	if m.Agent.PID == 0 {
		return false
	}
	select {
	case <-m.dead:
		return false
	default:
		return true
	}
}

// named is a process by its number.
func named(pid int) process { return process{pid, begun(pid)} }

// lives says whether it is still there.
func (p process) lives() bool { return p.PID != 0 && p.Begun == begun(p.PID) }

// begun is when a process started; 0: there is none, or it is dead.
func begun(pid int) int64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if string(fields[0]) == "Z" {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[19]), 10, 64)
	return n
}

// Abilities says that machines outlive the process that made them.
func (d *Driver) Abilities() driver.Abilities { return driver.Abilities{Level: level, Keeper: d} }

// List names the machines that live, and whose owner does not or is we.
func (d *Driver) List(context.Context) ([]string, error) {
	var ids []string
	entries, err := os.ReadDir(d.o.StateDir)
	for _, e := range entries {
		if m, err := d.load(e.Name()); err == nil && m.Agent.lives() && (!m.Owner.lives() || m.Owner.PID == os.Getpid()) {
			ids = append(ids, e.Name())
		}
	}
	if os.IsNotExist(err) {
		err = nil
	}
	return ids, err
}

func (d *Driver) load(id string) (*machine, error) {
	m := d.machine(id)
	b, err := os.ReadFile(filepath.Join(m.dir, record))
	if err == nil {
		err = json.Unmarshal(b, m)
	}
	return m, err
}

// adoptedPoll is how often the end of a process is looked for that is not our child.
const adoptedPoll = 5 * time.Millisecond

// Adopt takes over a machine that an earlier process had made.
func (d *Driver) Adopt(_ context.Context, id string) (driver.Machine, driver.Plan, error) {
	m, err := d.load(id)
	if err != nil || !m.Agent.lives() {
		return nil, driver.Plan{}, &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no machine " + id + " lives"}
	}
	m.Owner = named(os.Getpid())
	if err := m.save(); err != nil {
		return nil, driver.Plan{}, failed("take over a machine", err)
	}
	go func() {
		for m.Agent.lives() {
			time.Sleep(adoptedPoll)
		}
		m.ended()
	}()
	return m, m.Plan, nil
}

// Leftovers removes what is known of machines that are no more.
func (d *Driver) Leftovers(context.Context) ([]driver.Leftover, error) {
	var gone []driver.Leftover
	entries, _ := os.ReadDir(d.o.StateDir)
	for _, e := range entries {
		m, err := d.load(e.Name())
		if err == nil && (m.Agent.lives() || m.Owner.lives()) {
			continue
		}
		gone = append(gone, driver.Leftover{Kind: "directory", Name: e.Name(), Err: os.RemoveAll(m.dir)})
	}
	return gone, nil
}

// Close does nothing: machines go on.
func (d *Driver) Close() error { return nil }
