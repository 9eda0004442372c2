//go:build linux

package native

import (
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/layers"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// scratch is a directory that every host has. In the sandbox's own mount
// namespace its root is built on top of it.
const scratch = "/tmp"

// agentCapabilities are what the agent keeps, inside its own user namespace, to
// become the user, to end the user's processes, to place them on processors and to
// handle the user's files.
// The processes it starts keep nothing.
var agentCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP,
	unix.CAP_SYS_NICE,
}

// devDirs and devLinks complete /dev.
var (
	devDirs  = []string{"/proc", "/dev", "/dev/pts"}
	devLinks = []image.Link{
		{Target: "pts/ptmx", Path: "/dev/ptmx"},
		{Target: "/proc/self/fd", Path: "/dev/fd"},
		{Target: "/proc/self/fd/0", Path: "/dev/stdin"},
		{Target: "/proc/self/fd/1", Path: "/dev/stdout"},
		{Target: "/proc/self/fd/2", Path: "/dev/stderr"},
	}
)

// namespaces are the flags of clone3. The cgroup and time namespaces are
// entered by steps: the first must see the sandbox's own cgroup, the second
// takes effect at the exec.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// initSpec is what the table of system calls is made from.
type initSpec struct {
	template image.Template
	limits   sandbox.Limits
	mounts   []sandbox.Mount
	layers   []*os.File // of the template, where it is an image: the topmost first
	trees    []*os.File // for each of mounts: the view, where it is open already
	layered  bool       // see views
	nested   []string   // mounts below what is shown
	copies   []image.File
	hostname string
	layout   *layout      // of /proc and /sys
	own      []image.File // in them, of this sandbox alone
	skeleton int64        // skeletonInodes of the template without mounts, where they are counted already; or 0

	socket      int   // the agent's end of the connection; later also carries the init spec's descriptors to the host
	agent       int   // the agent's program
	agentOnDisk bool  // it is a file of the host's
	agentDoors  bool  // the agent opens doors, at low ports too
	initStub    int   // the init stub, which becomes the agent when that is needed; 0: the agent starts at once
	join        []int // cgroup v1: files to write "0" to

	ownDevices bool     // on tmpfs
	tmpfs      *os.File // then: what is to be the root, made already

	onPrepared bool // the mount namespace is a copy of the prepared one

	switchUser bool  // more than one id is mapped: the agent is root inside
	uid, gid   int   // the user's ids inside
	processes  int64 // where no cgroup limits tasks: the limit for RLIMIT_NPROC
	timeNS     bool
	forked     bool // the program is forked from a zygote, not started by the agent

	doors       []driver.Door // names that can be reached
	hold        spawn.Cell    // of root
	timeOffsets spawn.Cell    // of openTimeOffsets
	landlock    *landlockRules
	filter      *filterProgram
	agentArgs   []string     // beside those that it always has
	quotas      []quota      // of the user namespace
	opened      []spawn.Cell // doors, and the resolver's socket
}

// program returns the whole life of a sandbox's first process, from its birth
// to the exec of the agent, or of what waits for it. Names of steps appear in
// error messages.
func (n *initSpec) program() *spawn.Program {
	keep := append([]int{n.socket, n.agent}, n.join...)
	keep = n.keepRoot(keep)
	if n.initStub > 0 {
		keep = append(keep, n.initStub)
	}
	for _, f := range slices.Concat(n.trees, n.layers) {
		if f != nil {
			keep = append(keep, int(f.Fd()))
		}
	}
	p := spawn.New(keep...)
	n.begin(p)
	n.identity(p)
	limitShared(p, n.quotas)
	n.root(p)
	n.surroundings(p)
	n.descriptors(p)
	n.confine(p)
	p.Setsid()
	n.become(p)
	return p
}

// begin joins the cgroup and waits for the host.
func (n *initSpec) begin(p *spawn.Program) {
	for _, fd := range n.join {
		p.Call("join cgroup", unix.SYS_WRITE, fd, "0", 1)
	}
	p.Positive("wait for the host", unix.SYS_READ, n.socket, make([]byte, 1), 1)
	if n.timeNS {
		n.openTimeOffsets(p)
	}
	n.openLayers(p)
}

// openLayers opens an image's layers in the sandbox's mount namespace. The machine of a
// zygote's child begins in their directory (spawn.Clone.Dir).
func (n *initSpec) openLayers(p *spawn.Program) {
	if len(n.layers) > 0 && !n.forked {
		p.Chdir(n.template.Layers.Under)
	}
	layers.Reopen(p, n.layers)
}

// identity makes the process the root of its user namespace, where it has one.
func (n *initSpec) identity(p *spawn.Program) {
	if n.switchUser {
		p.Setresgid(0)
		p.Setresuid(0)
		// A change of user made the memory that we still share with the host
		// process undumpable; that is not ours to change.
		p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	p.Call("die with the host", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0)
	p.Call("set umask", unix.SYS_UMASK, 0)
}

// root builds the sandbox's file tree and makes it the root. One tmpfs holds
// the skeleton and every writable place, so that one number limits them all;
// its root is then seen read-only, and the writable places through mounts of
// their own.
func (n *initSpec) root(p *spawn.Program) {
	place := scratch
	if n.onPrepared {
		place = preparedRoot
	} else {
		mount.Private(p)
	}
	views := n.openViews(p)
	if n.ownDevices {
		mount.Opened(int(n.tmpfs.Fd())).Attach(p, place)
	} else {
		mount.Filesystem(p, "tmpfs", place, unix.MS_NOSUID|unix.MS_NODEV, n.tmpfsOptions())
	}
	p.Chdir(place)
	// A mount of the tmpfs for the host, which reads what is on it and writes the
	// files that change. It is part of no namespace.
	n.hold = p.Result("hold the root", unix.SYS_OPEN_TREE, unix.AT_FDCWD, ".", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	made := map[string]bool{} // directories: most views share theirs
	for _, d := range n.template.Dirs {
		mount.Mkdir(p, rel(d.Path), d.Mode)
		made[rel(d.Path)] = true
	}
	for _, d := range devDirs {
		mount.Mkdir(p, rel(d), 0o755)
		made[rel(d)] = true
	}
	for _, l := range slices.Concat(n.template.Links, devLinks) {
		mount.Symlink(p, l.Target, rel(l.Path))
	}
	for _, f := range slices.Concat(n.template.Files, n.copies) {
		mount.WriteFile(p, rel(f.Path), f.Content, f.Mode)
	}
	n.layout.make(p, n.own)
	writable := n.writable(p)
	at := n.stack(p, views, made)
	if n.ownDevices {
		mount.ShowDevices(p, "dev", at+"dev")
	}
	for _, w := range writable {
		w.tree.Attach(p, at+rel(w.target))
	}
	for _, v := range views {
		v.show(p, at, made)
	}
	n.proc(p, at)
	if at != "" {
		p.Chdir(at)
	}
	if n.onPrepared {
		mount.Cover(p)
	} else {
		mount.Pivot(p)
	}
	mount.Restrict(p, "/", mount.ReadOnly)
	p.Call("set umask", unix.SYS_UMASK, 0o022)
}

// stack lays what was made over the layers of an image, and returns the path, relative to
// the working directory, at which the whole is seen. Without layers what was made is
// the root: the path is "". What will be mounted on must be made before.
func (n *initSpec) stack(p *spawn.Program, views []view, made map[string]bool) (at string) {
	if len(n.layers) == 0 {
		return ""
	}
	for _, v := range views {
		v.makeTarget(p, made)
	}
	mount.Overlay(p, append([]string{"."}, layers.Lowers(n.layers)...), emptyDir, unix.MS_NOSUID|unix.MS_NODEV)
	return emptyDir + "/"
}

// writable gives the writable places their owner and makes mounts of their own.
func (n *initSpec) writable(p *spawn.Program) (places []view) {
	for _, w := range n.template.Writable {
		mount.Mkdir(p, rel(w.Path), w.Mode)
		if w.UID != 0 && n.switchUser {
			mount.Chown(p, rel(w.Path), n.uid, n.gid)
		}
		places = append(places, view{target: w.Path, tree: mount.Clone(p, rel(w.Path), false, 0)})
	}
	return places
}

// proc mounts what processes need to see of themselves, in the root at a path.
func (n *initSpec) proc(p *spawn.Program, at string) {
	n.layout.mountProc(p, at)
	// The host has some 3,000 terminals for all that are not its own.
	mount.Filesystem(p, "devpts", at+"dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64")
	if n.timeNS {
		p.Call("new time namespace", unix.SYS_UNSHARE, unix.CLONE_NEWTIME)
		n.hideUptime(p)
	}
}

// openTimeOffsets takes hold of the file before the change of user: afterwards
// it may be refused, at the moment in which another sandbox's change of user has
// made the memory that all share with the host process undumpable. The machine
// of a zygote's child is not the host's user from its birth on, so it tries more than once.
// What it opens too much is closed with the rest.
func (n *initSpec) openTimeOffsets(p *spawn.Program) {
	n.timeOffsets = p.CellOf(-1)
	for range timeOffsetsTries {
		p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		p.Optional("open time offsets", unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/timens_offsets", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		p.SaveTo(n.timeOffsets)
		if !n.forked {
			break
		}
	}
}

// timeOffsetsTries is enough: each fails only if another sandbox's change of
// user comes between two system calls.
const timeOffsetsTries = 4

// hideUptime makes the sandbox's clocks that count from boot begin near zero.
func (n *initSpec) hideUptime(p *spawn.Program) {
	var b strings.Builder
	for _, clock := range []struct {
		name string
		id   int32
	}{{"monotonic", unix.CLOCK_MONOTONIC}, {"boottime", unix.CLOCK_BOOTTIME}} {
		var now unix.Timespec
		if unix.ClockGettime(clock.id, &now) == nil {
			fmt.Fprintf(&b, "%s %d 0\n", clock.name, -now.Sec)
		}
	}
	p.Positive("set time offsets", unix.SYS_WRITE, n.timeOffsets.Ref(), b.String(), b.Len())
	p.Call("close time offsets", unix.SYS_CLOSE, n.timeOffsets.Ref())
}

// surroundings sets what is not files: the rest of the namespaces, the host's
// name, the loopback interface, limits.
func (n *initSpec) surroundings(p *spawn.Program) {
	p.Call("new cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.Call("set host name", unix.SYS_SETHOSTNAME, n.hostname, len(n.hostname))
	p.Call("set domain name", unix.SYS_SETDOMAINNAME, "", 0)
	loopback(p)
	n.openDoors(p)
	for _, l := range inheritedRlimits {
		p.Rlimit(l.resource, l.value)
	}
	if n.processes > 0 {
		// The kernel counts the tasks of each user in each user namespace. The
		// agent is another user than the guest, unless there is only one.
		limit := n.processes + spareProcesses
		if !n.switchUser {
			limit += wire.MaxTasks
		}
		p.Rlimit(unix.RLIMIT_NPROC, uint64(limit)) //nolint:gosec // validated to be positive
	}
}

// spareProcesses is how far RLIMIT_NPROC lies above limits.processes: far enough
// to see a program that goes beyond its limit.
const spareProcesses = 2

// inheritedRlimits hold for the agent and all it starts.
var inheritedRlimits = []struct {
	resource int
	value    uint64
}{
	// No core dumps. 0 would still feed a pipe in core_pattern; 1 means none at
	// all: for a file it is too little, and for a pipe the kernel takes it as a
	// no (fs/coredump.c).
	{unix.RLIMIT_CORE, 1},
	{unix.RLIMIT_MEMLOCK, 64 << 10},
	{unix.RLIMIT_MSGQUEUE, 0},
	{unix.RLIMIT_SIGPENDING, maxPendingSignals},
	{unix.RLIMIT_NICE, 0},
	{unix.RLIMIT_RTPRIO, 0},
}

// loopback brings up the only network interface there is.
func loopback(p *spawn.Program) {
	request := make([]byte, 40) // struct ifreq
	copy(request, "lo")
	binary.NativeEndian.PutUint16(request[16:], unix.IFF_UP|unix.IFF_RUNNING)
	fd := p.Result("open network", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	p.Call("start loopback", unix.SYS_IOCTL, fd.Ref(), unix.SIOCSIFFLAGS, request)
	p.Call("close network", unix.SYS_CLOSE, fd.Ref())
}

// descriptors gives the process /dev/null three times.
func (n *initSpec) descriptors(p *spawn.Program) {
	null := p.Result("open /dev/null", unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		p.Call("replace standard descriptor", unix.SYS_DUP3, null.Ref(), fd, 0)
	}
}

// confine takes away what the agent does not need, and sends the host the
// descriptors through which it watches the sandbox.
func (n *initSpec) confine(p *spawn.Program) {
	p.NoNewPrivs()
	var mask uint64
	if n.switchUser {
		keep := agentCapabilities
		if n.agentDoors {
			keep = append(slices.Clone(keep), unix.CAP_NET_BIND_SERVICE)
		}
		p.DropBounding(keep...)
		for _, c := range keep {
			mask |= 1 << c
		}
		p.SetCapabilities(mask, 0)
	} else {
		p.DropBounding()
		p.ClearCapabilities()
	}
	if n.landlock != nil {
		agentFile := -1
		if n.agentOnDisk {
			agentFile = n.agent
		}
		n.landlock.apply(p, n.writablePaths(), agentFile, n.forked)
	}
	fds := []spawn.Cell{n.hold}
	if n.filter != nil {
		fds = append(fds, n.filter.apply(p)...)
	}
	fds = append(fds, n.opened...)
	p.SendDescriptors(n.socket, fds)
}

// tmpfsOptions sizes the tmpfs so that exactly the limits are left for the
// guest once the skeleton is in place.
func (n *initSpec) tmpfsOptions() string {
	return mount.TmpfsOptions(n.tmpfsBytes(), n.tmpfsInodes(), rootMode)
}

const rootMode = 0o755

func (n *initSpec) tmpfsInodes() int64 {
	return n.limits.Inodes + n.skeletonInodes() + n.layout.inodes() + int64(len(n.own))
}

func (n *initSpec) tmpfsBytes() int64 {
	const page = 4096
	bytes := n.limits.DiskBytes
	for _, f := range slices.Concat(n.template.Files, n.copies, n.layout.files, n.own) {
		bytes += (int64(len(f.Content)) + page - 1) / page * page
	}
	return bytes
}

// skeletonInodes counts the entries that root makes, and the root itself.
func (n *initSpec) skeletonInodes() int64 {
	if n.skeleton > 0 && len(n.mounts) == 0 {
		return n.skeleton
	}
	made := map[string]bool{"/": true}
	add := func(p string) {
		for ; p != "/"; p = path.Dir(p) {
			made[p] = true
		}
	}
	for _, d := range n.template.Dirs {
		add(d.Path)
	}
	for _, d := range devDirs {
		add(d)
	}
	for _, l := range slices.Concat(n.template.Links, devLinks) {
		add(l.Path)
	}
	for _, f := range n.template.Files {
		add(f.Path)
	}
	for _, w := range n.template.Writable {
		add(w.Path)
	}
	for _, b := range n.template.Binds {
		add(b.Target)
	}
	for _, d := range devices {
		add("/dev/" + d.Name)
	}
	for _, m := range n.mounts {
		add(m.Guest)
	}
	return int64(len(made))
}

func (n *initSpec) writablePaths() []string {
	var paths []string
	for _, w := range n.template.Writable {
		paths = append(paths, w.Path)
	}
	for _, m := range n.mounts {
		if m.Writable {
			paths = append(paths, m.Guest)
		}
	}
	return paths
}

// rel turns a path of the template into one below the working directory.
func rel(absolute string) string { return strings.TrimPrefix(absolute, "/") }
