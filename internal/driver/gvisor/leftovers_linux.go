package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/proctree"
)

// The name of a machine's control group says who made it: the pid namespace and the number
// of this process in it, and when it began. One of another pid namespace is not ours to
// judge. The fields are numbers of base 36, of these lengths.
const (
	namePrefix = "gv"
	nsDigits   = 7
	pidDigits  = 5
	timeDigits = 8
)

// ownName begins the names of this process's control groups.
func ownName() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return "", err
	}
	return nameOf(namePrefix+digits(int64(st.Ino&0xffffffff), nsDigits), proctree.Named(os.Getpid())), nil //nolint:gosec // 32 bits
}

// nameOf is a process's, in the pid namespace with which another name of ours begins.
func nameOf(beside string, p proctree.Process) string {
	return beside[:len(namePrefix)+nsDigits] + digits(int64(p.PID), pidDigits) + digits(p.Begun, timeDigits) + "-"
}

func digits(n int64, most int) string { return fmt.Sprintf("%0*s", most, strconv.FormatInt(n, 36)) }

// ownerLives says whether the process that made a control group lives. What is not known to
// be of a dead one counts as alive.
func ownerLives(group, self string) bool {
	const length = len(namePrefix) + nsDigits + pidDigits + timeDigits
	const ns = len(namePrefix) + nsDigits
	if len(group) <= length || !strings.HasPrefix(group, self[:ns]) || group[length] != '-' || strings.HasPrefix(group, self) {
		return true
	}
	pid, err := strconv.ParseInt(group[ns:ns+pidDigits], 36, 32)
	begun, err2 := strconv.ParseInt(group[ns+pidDigits:length], 36, 64)
	return err != nil || err2 != nil || proctree.Process{PID: int(pid), Begun: begun}.Lives()
}

// endTimeout is for processes that are still ending when their control group is gone.
const endTimeout = 3 * time.Second

// Leftovers removes the control groups and user ids of host processes that have died.
// Their sandboxes have died with them (PR_SET_PDEATHSIG, and the pid namespace), mounts and
// namespaces with the processes.
func (d *Driver) Leftovers(ctx context.Context) ([]driver.Leftover, error) {
	if usableHere() != nil {
		return nil, nil //nolint:nilerr // then there never was a machine
	}
	l, err := d.prepare()
	if err != nil {
		return nil, err
	}
	swept, err := l.hierarchy.Sweep(ctx, func(name string) bool { return ownerLives(name, l.owner) })
	var found []driver.Leftover
	for _, s := range swept {
		found = append(found, driver.Leftover{Kind: "cgroup", Name: s.Name, Err: s.Err})
	}
	blocks, sweepErr := l.pool.Sweep(endTimeout)
	for _, name := range blocks {
		found = append(found, driver.Leftover{Kind: "lease", Name: name})
	}
	return found, errors.Join(err, sweepErr)
}
