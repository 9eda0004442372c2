//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
)

// # Prepared mounts
//
// What it takes to make a sandbox must not grow with how many live. Two things
// do when the mount namespace begins as a copy of the host's: the change of root
// (pivot_root looks at every thread of the host), and the quotas of the user
// namespace (the kernel finds them in /proc/sys/user among the entries of the same
// name of all other user namespaces that one instance of /proc was asked for).
//
// So where many live, sandboxes begin with a copy of prepared mounts: a mount namespace
// that root has made before, once for prepareShare sandboxes. Its root is an empty
// read-only tmpfs. On it lie the same views of the host that every sandbox has, with
// the same flags, which the kernel locks in the copies; an instance of /proc that
// shows nobody any process but its own; and an empty directory, in which the
// sandbox's root is built to be laid over all of this. What stays below is nothing
// that is not seen above, but for that /proc; and only who may unmount in the
// sandbox's mount namespace could lay it bare. Nobody inside may.
//
// Where few live, and nothing is mounted below the views, nothing would be gained: what
// prepared mounts save in calls is lost in the process that enters them. For the machines of
// a zygote's children, which such a process makes anyway, it was measured: no less CPU time
// altogether that could be told from noise. Ordinary users do without: they may not enter a namespace of
// root's.
//
// Where something is mounted below the views, a sandbox with layers of its own cannot do
// without (see views.go): there it is an error that no prepared mounts can be made.

const (
	prepareFrom  = 32 // as many do without: making prepared mounts takes as long as making a sandbox
	prepareShare = 64 // as many share one

	// preparePause is for how long nobody tries again to make some that sandboxes can do
	// without.
	preparePause = 10 * time.Second
)

// preparedRoot is where on prepared mounts a sandbox's root is built.
const preparedRoot = "/new"

// preparedView is where on prepared mounts one of hostViews lies.
func preparedView(i int) string { return "/views/" + strconv.Itoa(i) }

// preparedMounts are one such mount namespace.
type preparedMounts struct {
	namespace *os.File
	shows     string // see mountState
	users     int
}

// preparedPool hands them out. It is safe for concurrent use.
type preparedPool struct {
	views func(mountState) []hostView
	make  func([]hostView) (*os.File, error) // prepareMounts, but in tests
	from  int                                // prepareFrom, or less in tests

	mu     sync.Mutex
	off    bool // not to be had here
	living int
	all    []*preparedMounts
	shows  string    // of the host, when somebody looked last
	failed time.Time // when none could be made last
}

// take returns the prepared mounts for a new machine, nil where it does without. One that needs
// prepared mounts, and for which none can be made, is an error. Each take is followed by a
// give, also after an error.
func (g *preparedPool) take(state mountState, need bool) (*preparedMounts, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.living++
	if g.off || !need && (g.living <= g.from || time.Since(g.failed) < preparePause) {
		return nil, nil
	}
	// A view of a directory that was replaced still shows the old one, and not what
	// was mounted below it since.
	g.shows = state.identity
	g.tidy()
	for _, found := range g.all {
		if found.users < prepareShare && found.shows == g.shows {
			found.users++
			return found, nil
		}
	}
	namespace, err := g.make(g.views(state))
	if err != nil {
		g.failed = time.Now()
		if need {
			return nil, fmt.Errorf("prepare mounts for sandboxes: %w", err)
		}
		return nil, nil // it only takes longer
	}
	made := &preparedMounts{namespace: namespace, shows: g.shows, users: 1}
	g.all = append(g.all, made)
	return made, nil
}

// give takes note that a machine is gone.
func (g *preparedPool) give(from *preparedMounts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.living--
	if from != nil {
		from.users--
	}
	g.tidy()
}

// tidy closes those on which nobody stands, and nobody soon will: because they
// show what the host has no longer, or because few live.
func (g *preparedPool) tidy() {
	g.all = slices.DeleteFunc(g.all, func(old *preparedMounts) bool {
		idle := old.users == 0 && (old.shows != g.shows || g.living <= g.from/2)
		if idle {
			_ = old.namespace.Close()
		}
		return idle
	})
}

// close gives back all.
func (g *preparedPool) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, old := range g.all {
		_ = old.namespace.Close()
	}
	g.all, g.off = nil, true
}

// prepareMounts makes one. The process that builds it ends; the namespace lives as
// long as a descriptor of it.
func prepareMounts(shown []hostView) (*os.File, error) {
	ours, theirs, err := unixpair.New(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer ours.Close() //nolint:errcheck // nothing more is said
	child, err := prepareProgram(shown, int(theirs.Fd())).Start(spawn.Clone{Flags: unix.CLONE_NEWNS, CopyLow: true})
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	if n, err := ours.Read(make([]byte, 1)); n != 1 {
		return nil, errors.Join(child.WaitExec(), err)
	}
	defer child.Abandon()
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", child.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(highfd.Move(fd)), "prepared mounts"), nil
}

// prepareProgram builds prepared mounts, says so, and waits to be killed.
func prepareProgram(shown []hostView, socket int) *spawn.Program {
	p := spawn.New(socket)
	p.Call("die with the host", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0)
	p.Call("set umask", unix.SYS_UMASK, 0)
	mount.Private(p)
	var views []view
	for i, v := range shown {
		views = append(views, view{target: preparedView(i), dir: v.dir, tree: mount.Clone(p, v.source, v.dir && !v.layered, v.flags)})
	}
	mount.Filesystem(p, "tmpfs", scratch, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, mount.TmpfsOptions(1<<20, int64(len(views))+8, 0o755))
	p.Chdir(scratch)
	made := map[string]bool{}
	for _, dir := range []string{"views", "proc", rel(preparedRoot)} {
		mount.Mkdir(p, dir, 0o755)
		made[dir] = true
	}
	for _, v := range views {
		v.show(p, "", made)
	}
	mount.Filesystem(p, "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=ptraceable")
	mount.Pivot(p)
	mount.Restrict(p, "/", mount.ReadOnly)
	p.Positive("report the prepared mounts", unix.SYS_WRITE, socket, []byte{1}, 1)
	p.Positive("wait to be killed", unix.SYS_READ, socket, make([]byte, 1), 1)
	p.Exec("/", nil, nil) // not reached
	return p
}
