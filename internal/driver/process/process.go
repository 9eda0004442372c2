//go:build linux

// Package process makes sandboxes of plain processes, for hosts on which no namespace and
// no cgroup is to be had: Landlock keeps them to their own files, a system-call filter
// from the network, from the host's sockets and from other processes, and a supervisor
// ends all that they start. It is the lowest level of isolation, and is never taken
// unless somebody asks for it.
//
// # What holds a machine
//
// Its directory, with a home and a place for temporary files, is all that it may write to
// and, beside the template's system directories, all that it may read. As root each has a
// user id that nobody else has; otherwise it is the user's own, and the filter refuses
// what Landlock does not look at. A supervisor is the first process: orphans come to it,
// nothing inside can signal it, and it ends all others when the agent has ended, or when
// the pipe to us closes, as it does when we die.
//
// # What does not
//
// There is one kernel, one list of processes and one file tree, of which names, sizes and
// times can be seen. Memory, disk and, for an ordinary user, processes are watched, not
// limited: a program goes beyond for a moment before it is ended. Probe says so.
package process

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/linux/seccomp"
	"pinfold/sandbox"
)

// Name is the driver's name in requests and results.
const Name = "process"

// Options configure the driver.
type Options struct {
	// Dir holds a directory for each machine, on the host's disk. Others must be able to
	// pass through the directories above it. Default: /var/tmp/pinfold-UID.
	Dir string
	// Blocks is the file of the host's id blocks, for root. Default: /run/pinfold/blocks.
	Blocks string
	// Agent returns the agent's executable.
	Agent func() ([]byte, error)

	level int // of Landlock that is used at most, for tests; 0: the kernel's
}

// Driver makes machines. It is safe for concurrent use.
type Driver struct {
	o    Options
	root bool

	once sync.Once
	host *host
	err  error

	claimOnce sync.Once
	claimErr  error
	pool      *idblock.Pool // root's; nil before the first machine
}

// host is what was found out, once.
type host struct {
	level    int // of Landlock; 0: there is none of use
	levelErr error
	support  seccomp.Support
	filter   *seccomp.Fprog
	program  seccomp.Program // which filter points into
	agent    *os.File        // sealed
}

// New returns the driver. Nothing is touched until it is first used.
func New(o Options) *Driver {
	o.Dir = cmp.Or(o.Dir, fmt.Sprintf("/var/tmp/pinfold-%d", os.Geteuid()))
	o.Blocks = cmp.Or(o.Blocks, "/run/pinfold/blocks")
	return &Driver{o: o, root: os.Geteuid() == 0}
}

// Name returns "process".
func (d *Driver) Name() string { return Name }

// prepare finds out about the host and opens what every machine needs.
func (d *Driver) prepare() (*host, error) {
	d.once.Do(func() { d.host, d.err = d.open() })
	return d.host, d.err
}

func (d *Driver) open() (h *host, err error) {
	h = &host{support: seccomp.Probe()}
	h.level, h.levelErr = landlockLevel(cmp.Or(d.o.level, landlock.MaxLevel))
	h.program, err = seccomp.Compile(seccomp.Options{
		Listener: h.support.Listener == nil,
		Shared:   &seccomp.Shared{Sockets: d.keepsSockets(h.level), Identity: !d.root},
	})
	if err != nil {
		return nil, failure.Of("compile the system-call filter", err)
	}
	h.filter = h.program.Fprog()
	program, err := d.o.Agent()
	if err == nil {
		h.agent, err = memfd.Sealed("pinfold-agent", program)
	}
	return h, err
}

// claim opens what machines are made from, before the first trace of one.
func (d *Driver) claim() error {
	d.claimOnce.Do(func() {
		if d.claimErr = d.makeDir(); d.claimErr != nil || !d.root {
			return
		}
		var err error
		if d.pool, err = idblock.New(d.o.Blocks, idblock.NoProcess); err != nil {
			d.claimErr = failure.Of("open the file of id blocks", err)
		}
	})
	return d.claimErr
}

// makeDir makes the directory of machines, which only we may change. As root their users
// pass through it.
func (d *Driver) makeDir() error {
	mode := os.FileMode(0o700)
	if d.root {
		mode = 0o711
	}
	if err := os.MkdirAll(filepath.Dir(d.o.Dir), 0o755); err != nil { //nolint:gosec // a directory of directories
		return failure.Of("make "+d.o.Dir, err)
	}
	if err := os.Mkdir(d.o.Dir, mode); err != nil && !os.IsExist(err) {
		return failure.Of("make "+d.o.Dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(d.o.Dir, &st); err != nil {
		return failure.Of("look at "+d.o.Dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 {
		return &sandbox.Error{
			Code: sandbox.CodeSetupFailed, Message: d.o.Dir + " is not a directory that only this user can write to", Hint: "remove it",
		}
	}
	if err := os.Chmod(d.o.Dir, mode); err != nil {
		return failure.Of("make "+d.o.Dir, err)
	}
	return nil
}

// Close gives back what the driver holds. Machines must be gone before.
func (d *Driver) Close() error {
	d.once.Do(func() { d.err = failure.Of("use the driver", os.ErrClosed) })
	d.claimOnce.Do(func() { d.claimErr = failure.Of("use the driver", os.ErrClosed) })
	if d.host != nil && d.host.agent != nil {
		_ = d.host.agent.Close()
	}
	_ = os.Remove(d.o.Dir) // if it is empty
	if d.pool == nil {
		return nil
	}
	return d.pool.Close()
}
