package gvisor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/highfd"
	"pinfold/sandbox"
)

// measure takes hold of what the machine is measured by, looks whether it is what the plan
// says, and sets the limits that are the guest's: of memory, beside what is there now, and of
// processor time.
func (m *machine) measure() (err error) {
	if m.root, err = openPath(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/root", m.child.PID), 0); err != nil {
		return failure.Of("look into the sandbox", err)
	}
	if m.disk, err = openPath(int(m.root.Fd()), rel(diskDir), inside); err != nil {
		return failure.Of("look at the sandbox's disk", err)
	}
	if err := m.verify(); err != nil {
		return failure.Of("see the sandbox enforced by runsc", err)
	}
	t := &m.meter
	t.Group, t.Limits, t.Tasks = m.group, m.plan.Limits, &tasks{machine: m}
	t.Disk = fmt.Sprintf("/proc/self/fd/%d", m.disk.Fd())
	t.Shown.Open = m.openShown
	if m.plan.Enforces(sandbox.FeatureMemory) {
		s, err := m.group.Stats()
		if err != nil {
			return failure.Of("measure the sandbox's kernel", err)
		}
		t.Own = max(0, s.Anon) + max(0, s.Shmem) + max(0, s.Kernel)
		if err := m.group.SetMemoryLimit(m.plan.Limits.MemoryBytes + t.Own); err != nil {
			return failure.Of("limit the sandbox's memory", err)
		}
	}
	if m.plan.Enforces(sandbox.FeatureCPUs) { // until now nothing of the guest's has run
		if err := m.group.SetCPUQuota(m.plan.Limits.CPUQuota(container.CPUPeriodUS), container.CPUPeriodUS); err != nil {
			return failure.Of("limit the sandbox's processor time", err)
		}
	}
	return t.Begin(0)
}

// inside resolves names in a machine's root as if nobody there could be trusted: runsc's own
// helpers are beside it.
const inside = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openPath opens a file or directory without using it.
func openPath(dir int, name string, resolve uint64) (*os.File, error) {
	return openAt(dir, name, unix.O_PATH, resolve)
}

func openAt(dir int, name string, flags, resolve uint64) (*os.File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(highfd.Move(fd)), name), nil //nolint:gosec // a descriptor
}

// openShown opens one of the files that the machine shows, to write to it.
func (m *machine) openShown(name string) (*os.File, error) {
	return openAt(int(m.root.Fd()), rel(shownDir+name), unix.O_WRONLY, inside)
}

// tasks are the guest's, which only the sentry knows.
type tasks struct {
	machine *machine
	next    time.Time // not to be asked before
}

// Shares of the time in which a sentry is asked, and for how long one that did not answer is
// left alone.
const (
	askShare  = 8
	leftAlone = 5 * time.Second
)

// Now implements container.Tasks. The sentry counts no refusals. The limit is set a little
// higher, so that a program that goes beyond it can be told from one that just keeps to it.
func (t *tasks) Now(u *driver.Usage, _ cgroup.Counters) {
	begun := time.Now()
	if t.machine.paused.Load() || begun.Before(t.next) {
		return
	}
	n, err := t.count()
	took := time.Since(begun)
	t.next = time.Now().Add(askShare * took)
	if err != nil {
		if took >= askTimeout {
			t.next = time.Now().Add(leftAlone)
		}
		return // the next reading may succeed
	}
	limit := t.machine.plan.Limits.Processes
	u.Processes = n
	u.ProcessesFull = u.ProcessesFull || n > limit-limit/4
	if n > limit {
		u.ProcessesDenied = max(1, u.ProcessesDenied)
	}
}

func (t *tasks) count() (n int64, err error) {
	err = t.machine.atSocket(func(socket string) (err error) { n, err = guestTasks(socket); return err })
	return n, err
}

// atSocket calls f with a name of the socket on which the sentry answers, and of nothing
// else: a name that leads elsewhere is refused.
func (m *machine) atSocket(f func(socket string) error) error {
	at, err := openPath(int(m.root.Fd()), rel(controlSocket), inside)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnasked, err)
	}
	defer at.Close() //nolint:errcheck // only the way in
	return f(fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
}

// Peak implements container.Tasks: the host's kernel counts others.
func (*tasks) Peak(*driver.Usage, cgroup.Peaks) {}
