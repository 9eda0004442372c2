//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// shownDevices are the device files that sandboxes see.
var shownDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// lockDevices are those that the host can open, and so lock, without a terminal.
var lockDevices = shownDevices[:5]

// nobody is what must be noticed of a sandbox.
func nobody([]string) []string { return nil }

// everyLock is what the host notices of somebody else who locks paths.
func everyLock(paths []string) (all []string) {
	for _, p := range paths {
		all = append(all, "flock "+p, "lock "+p)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			all = append(all, "lease "+p)
		}
	}
	return all
}

// everyDevice is what two who share the host's devices notice of each other.
func everyDevice(paths []string) (all []string) {
	for _, p := range paths {
		all = append(all, "events "+p)
	}
	return append(all, everyLock(lockDevices)...)
}

// locked has a payload lock all that is shown, and compares what is noticed of it.
func (a *arena) locked(where place, want func(paths []string) []string) error {
	dirs, files, err := shown()
	if err != nil {
		return err
	}
	paths := slices.Concat(dirs, files)
	seen, err := a.lockedBy(where, paths)
	return errors.Join(err, sameSet(seen, want(paths)))
}

// devices has a payload lock and watch device files, and compares what is noticed by
// whom. Others on this machine use and lock the host's as well: what should not be is
// looked for five times.
func (a *arena) devices(where place, want func(paths []string) []string) (err error) {
	for i := range 5 {
		time.Sleep(time.Duration(i) * 300 * time.Millisecond)
		if err = a.devicesOnce(where, want); err == nil {
			return nil
		}
	}
	return err
}

func (a *arena) devicesOnce(where place, want func(paths []string) []string) error {
	neighbour, _, err := a.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	out, err := where(func() error {
		for _, d := range shownDevices {
			f, err := os.Open(d)
			if err == nil {
				err = f.Close()
			}
			if err != nil && !errors.Is(err, unix.ENXIO) { // there is no terminal
				return err
			}
			info, err := os.Stat(d)
			if err != nil {
				return err
			}
			if err := os.Chmod(d, info.Mode().Perm()); err != nil { // as it was, which whoever watches hears
				return err
			}
		}
		out, err := a.shell(neighbour, "/", slices.Concat([]string{`for d in "$@"; do true < "$d"; done 2> /dev/null; echo used`, "sh"}, shownDevices)...)
		if err == nil && !strings.Contains(out, "used") {
			err = fmt.Errorf("the neighbour: %q", out)
		}
		return err
	})(watchCode, shownDevices...)
	if err != nil {
		return err
	}
	var seen []string
	values := doorValues(out)
	for _, d := range shownDevices {
		switch n := values[d]; n {
		case "0":
		case "", "unwatched":
			err = errors.Join(err, fmt.Errorf("%s is not watched: %q", d, n))
		default:
			seen = append(seen, "events "+d)
		}
	}
	locks, lockErr := a.lockedBy(where, lockDevices)
	return errors.Join(err, lockErr, sameSet(append(seen, locks...), want(shownDevices)))
}

// lockCode takes every kind of lock that there is.
const lockCode = `
import fcntl, struct
signal.signal(signal.SIGIO, signal.SIG_IGN) # what a lease tells
keep = []
for p in sys.argv[1:]:
    def opened(): keep.append(os.open(p, os.O_RDONLY)); return keep[-1]
    whole = struct.pack('hhqqi', fcntl.F_RDLCK, 0, 0, 0, 0)
    attempt('flock:' + p, lambda: fcntl.flock(opened(), fcntl.LOCK_EX))
    attempt('posix:' + p, lambda: fcntl.fcntl(opened(), fcntl.F_SETLK, whole) and None)
    attempt('ofd:' + p, lambda: fcntl.fcntl(opened(), 37, whole) and None)
    attempt('lease:' + p, lambda: str(fcntl.fcntl(opened(), fcntl.F_SETLEASE, fcntl.F_RDLCK)))
` + ready

// lockedBy has a payload lock paths. It returns what the host and a neighbour notice;
// a payload that did not get its locks is an error.
func (a *arena) lockedBy(where place, paths []string) (seen []string, err error) {
	neighbour, _, err := a.open(sandbox.Limits{})
	if err != nil {
		return nil, err
	}
	out, err := where(func() error {
		for _, p := range paths {
			found, err := lockable(p)
			if err != nil {
				return err
			}
			seen = append(seen, found...)
		}
		out, err := a.shell(neighbour, "/", slices.Concat([]string{`for f in "$@"; do flock -n -x "$f" true || echo "neighbour $f"; done; echo tried`, "sh"}, paths)...)
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "tried" {
				seen = append(seen, line)
			}
		}
		if err == nil && !strings.Contains(out, "tried") {
			err = fmt.Errorf("the neighbour: %q", out)
		}
		return err
	})(lockCode, paths...)
	values := doorValues(out)
	for _, p := range paths {
		for _, kind := range []string{"flock", "posix", "ofd"} {
			if v := values[kind+":"+p]; v != "ok" {
				err = errors.Join(err, fmt.Errorf("the payload's own lock, %s of %s: %q", kind, p, v))
			}
		}
		if v := values["lease:"+p]; !slices.Contains([]string{"0", "EINVAL", "EACCES", "EAGAIN"}, v) { // by the kind of file, whose it is, and who writes
			err = errors.Join(err, fmt.Errorf("the payload's lease of %s: %q", p, v))
		}
	}
	return seen, err
}

// lockable says what keeps the host from locking a file and opening it for writing.
func lockable(name string) (seen []string, err error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		seen = append(seen, "flock "+name)
	}
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l); err != nil {
		return nil, err
	}
	if l.Type != unix.F_UNLCK {
		seen = append(seen, "lock "+name)
	}
	w, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // nothing is written
	if errors.Is(err, unix.EWOULDBLOCK) {
		seen = append(seen, "lease "+name)
	}
	if err == nil {
		_ = unix.Close(w)
	}
	return seen, nil
}

// sameSet says what one list has and the other has not.
func sameSet(got, want []string) (err error) {
	for _, g := range got {
		if !slices.Contains(want, g) {
			err = errors.Join(err, fmt.Errorf("%s is noticed: %w", g, errHit))
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			err = errors.Join(err, fmt.Errorf("%s is not noticed", w))
		}
	}
	return err
}
