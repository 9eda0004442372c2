//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// computer is attacks on what is made up in /proc and /sys.
func computer() []Case {
	return []Case{
		{
			ID: "FS-30", Title: "the host's computer behind the one that is made up: its boot, memory, time, and every other name of its /proc", Level: User, Severity: HostLeak, Source: "own",
			Expect: "no name of the host's /proc exists but those that are covered; no value is the host's; nothing can be opened for writing",
			Attack: Payload{Code: computerCode, Args: hostsComputer()},
			Doors: append(doors("EROFS|EACCES", "/proc/stat /proc/meminfo /proc/uptime"),
				Door{"names", "0", "[1-9].*"}, Door{"boot", "own", "host"}, Door{"memory", "own", "host"}, Door{"uptime", "own", "host"}),
			Control: Control{Without: "files of its own over a /proc that looks up no other name", Jail: true},
			Twin: &Twin{
				What:    "reading how large the sandbox is",
				Payload: Payload{Language: "shell", Code: "grep -c ^processor /proc/cpuinfo; head -c 9 /proc/meminfo; echo; cat /sys/devices/system/cpu/online; wc -c </proc/sys/kernel/random/uuid"},
				Want:    "1\nMemTotal:\n0\n37",
			},
		},
		{
			ID: "FS-31", Title: "leases on the files of /proc that the host writes to, taken again and again", Level: User, Severity: HostDoS, Source: "own",
			Expect:  "no lease is had, also on one's own files; the wall time ends the run",
			Attack:  Payload{Code: leaseCode, Limits: sandbox.Limits{WallTimeMS: 1000}},
			Judge:   func(t *trial) error { return t.leased() },
			Control: Control{Without: "the filter and opens that wait for nobody", Run: waitsForLease},
		},
	}
}

// leaseCode holds leases for as long as it lives.
const leaseCode = `
import fcntl
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = {}
for p in "/proc/stat /proc/meminfo /proc/loadavg /proc/uptime".split():
    held[p] = os.open(p, os.O_RDONLY)
    attempt(p, lambda: fcntl.fcntl(held[p], fcntl.F_SETLEASE, fcntl.F_RDLCK))
open("own", "w").close()
attempt("own", lambda: fcntl.fcntl(os.open("own", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK))
while True:
    for fd in held.values():
        try: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError: pass
`

// leaseBreakTime is how long the kernel lets an open wait for the end of a lease.
const leaseBreakTime = 45 * time.Second

// leased wants no lease, and a run that ends as any other.
func (t *trial) leased() error {
	if t.err != nil {
		return t.err
	}
	got := doorValues(t.result.Stdout)
	if len(got) != 5 {
		return fmt.Errorf("only %v", got)
	}
	for key, value := range got {
		if value != "EINVAL" {
			return fmt.Errorf("a lease on %s: %s", key, value)
		}
	}
	if t.result.Cleanup != nil {
		return t.result.Cleanup
	}
	if t.result.Cause.Kind != sandbox.CauseWallTime || t.took > leaseBreakTime/2 {
		return fmt.Errorf("%s after %v", t.result.Cause.Kind, t.took)
	}
	return nil
}

// waitsForLease shows that an open for writing waits for the end of a lease.
func waitsForLease(a *arena) error {
	name := filepath.Join(a.dir, "leased")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return err
	}
	opened := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(name, os.O_WRONLY, 0)
		opened <- errors.Join(err, w.Close())
	}()
	select {
	case err := <-opened:
		return fmt.Errorf("it did not wait: %w", err)
	case <-time.After(100 * time.Millisecond):
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return errors.Join(err, <-opened)
}

const computerCode = `
boot, memory, names = sys.argv[1], sys.argv[2], sys.argv[3:]
covered = "cpuinfo filesystems loadavg meminfo mounts net self stat sys thread-self uptime version".split()
say("names", sum(os.path.lexists("/proc/" + n) for n in names if n not in covered))
read = lambda p: open(p).read().split()
say("boot", "host" if read("/proc/sys/kernel/random/boot_id")[0] == boot else "own")
say("memory", "host" if read("/proc/meminfo")[1] == memory else "own")
say("uptime", "host" if abs(float(read("/proc/uptime")[0]) - time.clock_gettime(time.CLOCK_BOOTTIME)) > 2 or float(read("/proc/uptime")[0]) > 60 else "own")
for p in "/proc/stat /proc/meminfo /proc/uptime".split():
    attempt(p, lambda: os.close(os.open(p, os.O_WRONLY)))
`

// hostsComputer returns the host's boot id, its memory and the names in its /proc.
func hostsComputer() []string {
	boot := strings.TrimSpace(string(must(os.ReadFile("/proc/sys/kernel/random/boot_id"))))
	memory := strings.Fields(string(must(os.ReadFile("/proc/meminfo"))))[1]
	args := []string{boot, memory}
	for _, e := range must(os.ReadDir("/proc")) {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			args = append(args, e.Name())
		}
	}
	return args
}
