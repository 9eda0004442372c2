package docker

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
)

// shown is the computer that programs see, and how it was when it was written last.
type shown struct {
	machine image.Machine
	dir     string
	booted  int64 // when the host's clocks began, in seconds since 1970

	at   time.Time
	last image.Reading
}

// showEvery is how often the files that change are written at most, while the counters
// are read.
const showEvery = 200 * time.Millisecond

// computer is one as large as the machine's limits.
func (m *machine) computer(facts image.HostFacts) shown {
	l := m.Plan.Limits
	version := 2
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		version = 1
	}
	return shown{
		machine: image.Machine{Host: facts, CPUs: facts.CPUs(l.CPUs), Memory: l.MemoryBytes, QuotaUS: l.CPUQuota(cpuPeriodUS), PeriodUS: cpuPeriodUS, CgroupVersion: version},
		dir:     filepath.Join(m.dir, shownDir), booted: time.Now().Add(-uptime()).Unix(),
	}
}

// show writes the files that the machine shows, as they are at the beginning. They are
// the machine's own; what stands in /proc/sys the engine does not let us lay anything over.
func (m *machine) show(facts image.HostFacts) error {
	m.meter.shown = m.computer(facts)
	s := &m.meter.shown
	for _, f := range append(s.machine.Files(), s.live(0, 0, 0)...) {
		to := filepath.Join(s.dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // the guest reads it
			return err
		}
		if err := os.WriteFile(to, f.Content, 0o444); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}

// live returns the files that change, as they are with those counters.
func (s *shown) live(cpuNanos, memory, processes int64) []image.File {
	now := image.Reading{Uptime: uptime(), Booted: s.booted, CPU: time.Duration(cpuNanos), Memory: memory, Processes: processes}
	if passed := now.Uptime - s.last.Uptime; s.last.Uptime > 0 && passed > 0 {
		now.Load = s.last.Load.After(float64(now.CPU-s.last.CPU)/float64(passed), passed)
	}
	s.at, s.last = time.Now(), now
	return s.machine.Live(now)
}

// write writes them over what is there, where that is due. What cannot be written stays
// as it was.
func (s *shown) write(cpuNanos, memory, processes int64) {
	if time.Since(s.at) < showEvery {
		return
	}
	for _, f := range s.live(cpuNanos, memory, processes) {
		if to, err := os.OpenFile(filepath.Join(s.dir, f.Path), os.O_WRONLY, 0); err == nil {
			_, _ = to.WriteAt(f.Content, 0)
			_ = to.Close()
		}
	}
}

// uptime is the clock that counts from the host's boot, which is the machine's, too.
func uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
