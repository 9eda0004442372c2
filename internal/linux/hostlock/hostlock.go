//go:build linux

// Package hostlock says on a host which processes live that make sandboxes, so that
// another can tell what a dead one has left behind. A process holds a locked file in a
// directory of such, and names its cgroups by it. The kernel gives the lock back when the
// process dies, however it dies.
package hostlock

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// locksDir holds the locks, below the directory that Take is given.
const locksDir = "hosts"

// Lock is held while this process lives. It is safe for concurrent use.
type Lock struct {
	dir, token string
	file       *os.File
}

// tries is how often Take tries before it gives up, after a quarter of a second or so.
const tries = 300

// Take takes a lock in a directory, which it makes if it is missing and which only this
// user may write to. An error is of code setup_failed.
func Take(dir string) (*Lock, error) {
	b := make([]byte, 6)
	if _, err := rand.Read(b); err != nil {
		panic("hostlock: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	l := &Lock{dir: dir, token: hex.EncodeToString(b)}
	name := filepath.Join(dir, locksDir, l.token)
	var err error
	for try := range tries { // another process may remove the empty directories, or the file before it is locked
		if try >= 64 {
			time.Sleep(time.Millisecond) // many do the same, and they need the processor, too
		}
		if err = makeDir(dir); err != nil {
			continue
		}
		if l.file, err = lockFile(name); err != nil {
			continue
		}
		// What was there may have been removed, and made again by somebody else. From
		// now on it cannot be: our lock is in it.
		if err = isOurs(dir); err == nil {
			return l, nil
		}
		_ = os.Remove(name)
		_ = l.file.Close()
	}
	if known := new(sandbox.Error); errors.As(err, &known) {
		return nil, known
	}
	return nil, setupError("lock "+name, err)
}

// lockFile makes a file and locks it. A lock counts only while the name leads to
// the file: whoever looks for dead processes removes what is not locked yet.
func lockFile(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	var mine, there unix.Stat_t
	err = errors.Join(
		unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB),
		unix.Fstat(int(f.Fd()), &mine), unix.Lstat(name, &there))
	if err == nil && (mine.Ino != there.Ino || mine.Dev != there.Dev) {
		err = errors.New("the file was replaced")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// makeDir makes the directory, unless it is there.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return setupError("make "+dir, err)
	}
	return isOurs(dir)
}

// isOurs says whether the directory is ours alone.
func isOurs(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return setupError("look at "+dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 {
		return &sandbox.Error{
			Code:    sandbox.CodeSetupFailed,
			Message: fmt.Sprintf("%s is not a directory that only this user can write to", dir),
			Hint:    "remove it, or set another state directory",
		}
	}
	return nil
}

// Release gives the lock back. With stay the next process is to find that we have died,
// since something is left of ours.
func (l *Lock) Release(stay bool) {
	if !stay {
		_ = os.Remove(l.file.Name())
	}
	_ = l.file.Close()
	// The directories are removed only when nobody else uses them.
	for _, dir := range []string{locksDir, "."} {
		_ = os.Remove(filepath.Join(l.dir, dir))
	}
}

// Group names a sandbox's cgroup after the directory in which its owner's lock lies, the
// owner, and the sandbox: cgroups are one place for the whole host, directories of locks
// need not be.
func (l *Lock) Group(id string) string { return l.place() + "-" + l.token + "-" + id }

func (l *Lock) place() string {
	sum := sha256.Sum256([]byte(l.dir))
	return hex.EncodeToString(sum[:4])
}

// OwnerLives says whether the process that made a cgroup lives. What another
// directory accounts for is not ours to judge, and counts as alive.
func (l *Lock) OwnerLives(group string) bool {
	place, rest, _ := strings.Cut(group, "-")
	owner, _, _ := strings.Cut(rest, "-")
	return place != l.place() || owner == l.token || locked(filepath.Join(l.dir, locksDir, owner))
}

// AnyDead says whether a process died without giving back its lock.
func (l *Lock) AnyDead() bool {
	names, _ := filepath.Glob(filepath.Join(l.dir, locksDir, "*"))
	for _, name := range names {
		if name != l.file.Name() && !locked(name) {
			return true
		}
	}
	return false
}

// RemoveDead removes the locks of dead processes, and names them.
func (l *Lock) RemoveDead() (removed []string) {
	entries, err := os.ReadDir(filepath.Join(l.dir, locksDir))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := filepath.Join(l.dir, locksDir, e.Name())
		if name != l.file.Name() && !locked(name) && os.Remove(name) == nil {
			removed = append(removed, name)
		}
	}
	return removed
}

// locked says whether a living process holds the lock.
func locked(name string) bool {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only looked at
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func setupError(step string, err error) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: fmt.Sprintf("cannot %s: %v", step, err), Err: err}
}
