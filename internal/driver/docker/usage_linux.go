package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/proctree"
	"pinfold/internal/wire"
)

// tasks are those of the container, without those that made it and the agent's.
type tasks struct {
	pid   int   // of the agent
	agent int64 // its tasks
	made  int64 // the kernel's mark, of those that made the container
}

// Now implements container.Tasks.
func (t *tasks) Now(u *driver.Usage, c cgroup.Counters) {
	if c.ForksRefused >= 0 {
		u.ProcessesDenied = c.ForksRefused
	}
	t.countAgent()
	if c.Tasks >= 0 {
		u.Processes = max(0, c.Tasks-t.agent)
	}
}

// Peak implements container.Tasks.
func (t *tasks) Peak(u *driver.Usage, p cgroup.Peaks) {
	if p.TasksPeak > t.made {
		u.ProcessesPeak = max(u.ProcessesPeak, p.TasksPeak-t.agent)
	}
}

// countAgent counts the agent's threads, which are not the guest's: a directory of
// directories has one link for each and two more.
func (t *tasks) countAgent() {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/task", t.pid), &st) == nil && st.Nlink > 2 {
		t.agent = min(int64(st.Nlink)-2, wire.MaxTasks) //nolint:gosec // a number of threads
	}
}

// EachTask implements driver.TaskMeter.
func (m *machine) EachTask(visit func(task int, cpu, system int64)) {
	pids, _ := m.meter.Group.Procs()
	proctree.EachTask(slices.DeleteFunc(pids, func(pid int) bool { return pid == m.Agent.PID }), visit)
}

// measure has the machine's counters read from now on. used is container.Meter.Begin's.
func (m *machine) measure(used uint64) error {
	t := &tasks{pid: m.Agent.PID, agent: wire.MaxTasks}
	if p, err := m.meter.Group.Peaks(); err == nil {
		t.made = p.TasksPeak
	}
	m.meter.Tasks, m.meter.Limits = t, m.Plan.Limits
	m.meter.Disk = m.disk()
	return m.meter.Begin(used)
}

func (m *machine) disk() string { return filepath.Join(m.dir, diskDir) }

// show writes the files that the machine shows.
func (m *machine) show(facts image.HostFacts) error {
	m.meter.Shown = m.shown(facts)
	if err := m.meter.Shown.Make(); err != nil {
		return err
	}
	return m.showNames()
}

// showNames writes what programs need to find the names of doors, and whom they must trust.
func (m *machine) showNames() error {
	for _, f := range ownFiles(m.Plan) {
		to := filepath.Join(m.dir, shownDir, f.Path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // the guest reads it
			return err
		}
		if err := os.WriteFile(to, f.Content, 0o444); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}

func (m *machine) shown(facts image.HostFacts) container.Shown {
	return container.NewShown(facts, m.Plan.Limits, filepath.Join(m.dir, shownDir), false)
}

// BeginRun implements driver.RunMeter.
func (m *machine) BeginRun(ctx context.Context) (driver.Usage, error) { return m.meter.BeginRun(ctx) }

// EndRun implements driver.RunMeter.
func (m *machine) EndRun(ctx context.Context) (driver.Usage, error) { return m.meter.EndRun(ctx) }
