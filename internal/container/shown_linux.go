package container

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Shown is the computer that programs see, and how it was when it was written last.
type Shown struct {
	// Open opens one of the files, by its name inside, to write to it. Nil: by its name in
	// the directory.
	Open func(name string) (*os.File, error)

	machine image.Machine
	dir     string
	began   time.Duration // the host's clock that counts from its boot, when the machine's began
	booted  int64         // when that was, in seconds since 1970

	at   time.Time
	last image.Reading
}

// showEvery is how often the files that change are written at most, while the counters
// are read.
const showEvery = 200 * time.Millisecond

// NewShown is one as large as the limits. Its files are in dir, by their names inside. Its
// clocks began with the host's, or, where it has its own, now.
func NewShown(facts image.HostFacts, l sandbox.Limits, dir string, ownClocks bool) Shown {
	began, now := time.Duration(0), uptime()
	if ownClocks {
		began = now
	}
	version := 2
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		version = 1
	}
	return Shown{
		machine: image.Machine{Host: facts, CPUs: facts.CPUs(l.CPUs), Memory: l.MemoryBytes, QuotaUS: l.CPUQuota(CPUPeriodUS), PeriodUS: CPUPeriodUS, CgroupVersion: version},
		dir:     dir, began: began, booted: time.Now().Add(began - now).Unix(),
	}
}

// Files are all files, as they are at the beginning.
func (s *Shown) Files() []image.File { return append(s.machine.Files(), s.live(0, 0, 0)...) }

// Make makes the files. They are the machine's own; what stands in /proc/sys no runtime
// lets us lay anything over.
func (s *Shown) Make() error {
	for _, f := range s.Files() {
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
func (s *Shown) live(cpuNanos, memory, processes int64) []image.File {
	now := image.Reading{Uptime: uptime() - s.began, Booted: s.booted, CPU: time.Duration(cpuNanos), Memory: memory, Processes: processes}
	if passed := now.Uptime - s.last.Uptime; s.last.Uptime > 0 && passed > 0 {
		now.Load = s.last.Load.After(float64(now.CPU-s.last.CPU)/float64(passed), passed)
	}
	s.at, s.last = time.Now(), now
	return s.machine.Live(now)
}

// Write writes them over what is there, where that is due. What cannot be written stays
// as it was.
func (s *Shown) Write(cpuNanos, memory, processes int64) {
	if time.Since(s.at) < showEvery {
		return
	}
	for _, f := range s.live(cpuNanos, memory, processes) {
		if to, err := s.open(f.Path); err == nil {
			_, _ = to.WriteAt(f.Content, 0)
			_ = to.Close()
		}
	}
}

func (s *Shown) open(name string) (*os.File, error) {
	if s.Open != nil {
		return s.Open(name)
	}
	return os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|unix.O_NOFOLLOW, 0)
}

// uptime is the clock that counts from the host's boot.
func uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
