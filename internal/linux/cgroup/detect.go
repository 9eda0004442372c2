package cgroup

import (
	"fmt"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Names of the directories that we make.
const (
	groupsDir = "pinfold"      // holds the groups
	hostLeaf  = "pinfold-host" // holds this process, in a delegated cgroup
)

// Hierarchy is where on this host groups can be made, and what they can do.
// It is safe for concurrent use, and several processes may use the same place.
type Hierarchy struct {
	version int
	support map[Controller]Support
	trees   []tree

	swapFile bool         // the file that forbids swap was seen: it must be written
	enable   []Controller // version 2: switched on for the groups
	moveIn   bool         // version 2: this process must leave trees[0].root first
	mu       sync.Mutex   // held while preparing

	freezer     tree // version 1: where groups join when they are frozen; no root: nowhere
	freezerOnce sync.Once
	canFreeze   bool
	froze       atomic.Bool // version 1: we made the freezer's directory of groups
}

// tree is one directory in which the groups' directory lies. Version 2 has
// one; version 1 has one for each mounted hierarchy that we use.
type tree struct {
	root        string
	controllers []Controller
}

func (t tree) groups() string { return path.Join(t.root, groupsDir) }

// Options are for tests; the zero value is the real host.
type Options struct {
	Proc string // where procfs is mounted, "/proc" by default
}

// Detect looks at this host. It reads a few files and creates nothing; it takes
// about a tenth of a millisecond. The error is about machinery only (no /proc,
// say): that nothing can be used here is in the Hierarchy's Support.
func Detect(o Options) (*Hierarchy, error) {
	h := realHost()
	if o.Proc != "" {
		h.proc = o.Proc
	}
	return h.detect()
}

// host is what detection depends on.
type host struct {
	proc      string
	root      bool // our effective user is root
	systemd   bool // systemd manages this host
	pid       int
	writable  func(path string) error // nil: our effective ids may write there
	delegated func(dir string) bool   // systemd marked the cgroup as delegated
}

func realHost() host {
	return host{
		proc:    "/proc",
		root:    unix.Geteuid() == 0,
		systemd: exists("/run/systemd/system"),
		pid:     unix.Getpid(),
		writable: func(p string) error {
			return unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS)
		},
		delegated: isDelegated,
	}
}

// isDelegated reads the attribute that systemd sets on units with Delegate=yes
// (its docs/CGROUP_DELEGATION.md): trusted.* by the system's manager, user.* by
// a user's.
func isDelegated(dir string) bool {
	var value [8]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		n, err := unix.Getxattr(dir, name, value[:])
		if err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

func (h host) detect() (*Hierarchy, error) {
	info, err := readFile(path.Join(h.proc, "self/mountinfo"), maxMountinfo)
	if err != nil {
		return nil, fmt.Errorf("cannot find cgroup mounts: %w", err)
	}
	mounts := parseMountinfo(string(info))
	_, memory1 := pick(mounts, "memory")
	_, pids1 := pick(mounts, "pids")
	if memory1 || pids1 {
		return h.detectV1(mounts), nil
	}
	mount, ok := pick(mounts, "")
	if !ok {
		return h.nothing(noMount, "no cgroup file system is mounted"), nil
	}
	self, err := readFile(path.Join(h.proc, "self/cgroup"), maxSelfCgroup)
	if err != nil {
		return nil, fmt.Errorf("cannot find our own cgroup: %w", err)
	}
	own, err := ownCgroup(string(self))
	if err != nil {
		return nil, fmt.Errorf("cannot find our own cgroup: %w", err)
	}
	return h.detectV2(mount, own), nil
}

// Version is the version of the interface whose controllers are used, 1 or 2,
// or 0 when no cgroup file system is mounted.
func (h *Hierarchy) Version() int { return h.version }

// Support says whether the controller can be used.
func (h *Hierarchy) Support(c Controller) Support { return h.support[c] }

// Usable says whether New can make groups at all.
func (h *Hierarchy) Usable() bool { return len(h.trees) > 0 }

// Dirs lists the directories below which the groups lie, for reports.
func (h *Hierarchy) Dirs() []string {
	dirs := make([]string, len(h.trees))
	for i, t := range h.trees {
		dirs[i] = t.groups()
	}
	return dirs
}

func (h *Hierarchy) can(c Controller) bool { return h.support[c].Answer == Yes }

// nothing is a host where one problem stands before every controller.
func (h host) nothing(p problem, because string) *Hierarchy {
	found := &Hierarchy{support: map[Controller]Support{}}
	for _, c := range Controllers() {
		found.support[c] = h.no(c, p, because)
	}
	return found
}
