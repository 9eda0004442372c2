//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/highfd"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/proctree"
	"pinfold/sandbox"
)

// A machine's directory holds its home, its temporary files, and a file that its owner
// has locked for as long as that lives. It says who the machine's processes are.
const lockName = "owner"

// owned is what a machine's lock file says.
type owned struct {
	UID, GID   int // of its processes; -1: their owner's
	Supervisor proctree.Process
}

// mkdirTries is how often the directory of machines is made again.
const mkdirTries = 10

// makePlaces makes the machine's directory and locks it.
func (m *machine) makePlaces() error {
	mode := uint32(0o700)
	if m.uid >= 0 {
		mode = 0o711 // its user passes through
	}
	err := unix.Mkdir(m.dir, mode)
	for try := 0; errors.Is(err, unix.ENOENT) && try < mkdirTries; try++ {
		// Another process has closed its driver and found the directory of machines empty.
		if err := m.driver.makeDir(); err != nil {
			return err
		}
		err = unix.Mkdir(m.dir, mode)
	}
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: m.dir, Err: err}
	}
	if err := os.Chmod(m.dir, os.FileMode(mode)); err != nil {
		return err
	}
	if m.lock, err = takeLock(m.dir); err != nil {
		return err
	}
	if err := m.record(); err != nil {
		return err
	}
	for _, place := range []string{m.plan.User.Home, m.plan.User.Tmp} {
		if filepath.Dir(place) != m.dir {
			return errors.New(place + " is not in " + m.dir)
		}
		if err := os.Mkdir(place, 0o700); err != nil {
			return err
		}
		if m.uid >= 0 {
			if err := os.Lchown(place, m.uid, m.gid); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeLock makes a machine's lock file and locks it.
func takeLock(dir string) (*os.File, error) {
	fd, err := unix.Open(dir+"/"+lockName, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(highfd.Move(fd)), lockName) //nolint:gosec // a descriptor
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// record says in the lock file who the machine's processes are.
func (m *machine) record() error {
	o := owned{UID: m.uid, GID: m.gid}
	if m.child != nil {
		o.Supervisor = proctree.Named(m.child.PID)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := m.lock.Truncate(0); err != nil {
		return err
	}
	_, err = m.lock.WriteAt(b, 0)
	return err
}

// removePlaces removes the machine's directory, in which nobody works any more.
func (m *machine) removePlaces() error {
	if m.lock == nil {
		if err := unix.Rmdir(m.dir); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		return nil
	}
	err := removeTree(m.dir)
	if err == nil {
		_ = m.lock.Close()
		m.lock = nil
	}
	return err
}

// usedDisk counts what lies in the machine's places, in bytes and inodes; more than so many
// inodes it does not count.
func (m *machine) usedDisk(most int64) (bytes, inodes int64) {
	for _, place := range []string{m.plan.User.Home, m.plan.User.Tmp} {
		c := &counter{left: most + 1 - inodes, linked: map[uint64]bool{}}
		c.count(place)
		bytes, inodes = bytes+c.bytes, inodes+c.inodes
	}
	return bytes, inodes
}

// supervisorEnds is how long a supervisor whose owner has died may take to end the rest.
const supervisorEnds = 5 * time.Second

// Leftovers ends and removes the machines whose owners have died.
func (d *Driver) Leftovers(ctx context.Context) ([]driver.Leftover, error) {
	var found []driver.Leftover
	entries, err := os.ReadDir(d.o.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failure.Of("list "+d.o.Dir, err)
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		dir := filepath.Join(d.o.Dir, e.Name())
		lock, err := takeLock(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) || !e.IsDir() {
			continue // somebody's who lives, or gone
		}
		if err == nil {
			err = errors.Join(endLeft(lock), removeTree(dir))
			_ = lock.Close()
		}
		found = append(found, driver.Leftover{Kind: "directory", Name: dir, Err: err})
	}
	return found, d.freeBlocks(&found)
}

// freeBlocks gives back the user ids of dead processes of ours.
func (d *Driver) freeBlocks(found *[]driver.Leftover) error {
	if !d.root {
		return nil
	}
	if err := d.claim(); err != nil {
		return err
	}
	blocks, err := d.pool.Sweep(supervisorEnds)
	for _, name := range blocks {
		*found = append(*found, driver.Leftover{Kind: "lease", Name: name})
	}
	return err
}

// endLeft ends the processes of a machine whose owner has died. Its supervisor does so by
// itself, and only what it cannot is left for us.
func endLeft(lock *os.File) error {
	b := make([]byte, 1024)
	n, _ := lock.ReadAt(b, 0)
	var o owned
	if err := json.Unmarshal(b[:n], &o); err != nil {
		return nil //nolint:nilerr // it died before it had made anything
	}
	for until := time.Now().Add(supervisorEnds); o.Supervisor.Lives() && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
	}
	if o.UID >= idblock.First && os.Geteuid() == 0 {
		killUser(o.UID, o.GID, destroyTimeout)
		return nil
	}
	if !o.Supervisor.Lives() {
		return nil
	}
	for _, p := range append(proctree.Below(o.Supervisor.PID), o.Supervisor) {
		kill(p)
	}
	return sandbox.Errorf(sandbox.CodeInternal, "the supervisor %d had to be killed", o.Supervisor.PID)
}
