package gvisor

import (
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/layers"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
)

// scratch is a directory that every host has. In the machine's own mount namespace its root
// is built on top of it.
const scratch = "/tmp"

// namespaces of all processes of a machine. The sentry makes more for itself.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// Sizes of a machine's root, in which runsc keeps a few small files, and of nothing else.
const (
	stageBytes  = 16 << 20
	stageInodes = 4096
)

// stage is what the table of system calls of a machine's first process is made from, until
// it becomes runsc.
type stage struct {
	template image.Template
	plan     driver.Plan
	layers   []*os.File // of the template, where it is an image: the topmost first
	kept     []*os.File // views, as many as the plan's mounts
	config   []byte
	shown    []image.File

	socket int   // the agent's end of its connection
	runsc  int   // the program
	agent  int   // the agent's
	log    int   // where runsc says what went wrong
	join   []int // cgroup v1: files to write "0" to
}

// program is the table. Names of steps appear in error messages.
func (s *stage) program() *spawn.Program {
	keep := append([]int{s.socket, s.runsc, s.agent, s.log}, s.join...)
	for _, l := range slices.Concat(s.layers, s.kept) {
		keep = append(keep, int(l.Fd()))
	}
	p := spawn.New(keep...)
	for _, fd := range s.join {
		p.Call("join cgroup", unix.SYS_WRITE, fd, "0", 1)
	}
	p.Positive("wait for the host", unix.SYS_READ, s.socket, make([]byte, 1), 1)
	if len(s.layers) > 0 {
		p.Chdir(s.template.Layers.Under)
		layers.Reopen(p, s.layers)
	}
	p.Setresgid(0)
	p.Setresuid(0)
	// A change of user made the memory that we still share with the host process
	// undumpable; that is not ours to change.
	p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	p.Call("die with the host", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0)
	p.Call("set umask", unix.SYS_UMASK, 0)
	s.root(p)
	p.Rlimit(unix.RLIMIT_CORE, 1) // not even into a pipe
	p.Rlimit(unix.RLIMIT_MSGQUEUE, 0)
	null := p.Result("open /dev/null", unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	p.Call("replace standard input", unix.SYS_DUP3, null.Ref(), 0, 0)
	p.Call("replace standard output", unix.SYS_DUP3, null.Ref(), 1, 0)
	p.Call("replace standard error", unix.SYS_DUP3, s.log, 2, 0)
	p.NoNewPrivs()
	p.Setsid()
	s.become(p)
	return p
}

// root builds the machine's root and makes it the root.
func (s *stage) root(p *spawn.Program) {
	mount.Private(p)
	null := mount.Clone(p, "/dev/null", false, mount.NoSuid|mount.NoExec)
	views := make([]mount.Tree, len(s.template.Binds))
	for i, b := range s.template.Binds {
		views[i] = mount.Clone(p, b.Source, b.Dir, mount.ReadOnly|mount.NoSuid|mount.NoDev)
	}
	mount.Filesystem(p, "tmpfs", scratch, unix.MS_NOSUID|unix.MS_NODEV, mount.TmpfsOptions(stageBytes, stageInodes, 0o755))
	p.Chdir(scratch)
	made := map[string]bool{}
	for _, dir := range []string{bundleDir, rootDir, diskDir, shownDir, stateDir, "/tmp", "/proc", "/dev"} {
		mkdirs(p, dir, made)
	}
	mount.WriteFile(p, rel("/dev/null"), nil, 0o666)
	null.Attach(p, rel("/dev/null"))
	mount.WriteFile(p, rel(configAt), s.config, 0o600)
	mount.WriteFile(p, rel(nothingAt), nil, 0)
	for _, f := range s.shown {
		mkdirs(p, path.Dir(shownDir+f.Path), made)
		mount.WriteFile(p, rel(shownDir+f.Path), f.Content, f.Mode)
	}
	s.rootfs(p, views, made)
	s.disk(p)
	mount.Filesystem(p, "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	mount.Pivot(p)
	p.Call("set umask", unix.SYS_UMASK, 0o022)
}

// rootfs makes what the template shows. Of an image, what is made is laid over its layers,
// through an overlay of the machine's own: so nothing that an image has in the place of one
// of our directories leads anywhere.
func (s *stage) rootfs(p *spawn.Program, views []mount.Tree, made map[string]bool) {
	t, root := s.template, rootDir
	if len(s.layers) > 0 {
		root = skeletonDir
		mkdirs(p, root, made)
	}
	for _, d := range t.Dirs {
		mkdirs(p, root+d.Path, made)
	}
	for _, d := range []string{"/proc", "/dev", "/sys"} {
		mkdirs(p, root+d, made)
	}
	for _, w := range container.Places(s.plan.User.Home) {
		mkdirs(p, root+w.Path, made)
	}
	for _, f := range slices.Concat(shownFiles, masked) { // runsc would make them, and cannot in an overlay
		mkdirs(p, path.Dir(root+f), made)
		mount.WriteFile(p, rel(root+f), nil, 0o444)
	}
	for _, l := range t.Links {
		mount.Symlink(p, l.Target, rel(root+l.Path))
	}
	for _, f := range t.Files {
		mkdirs(p, path.Dir(root+f.Path), made)
		mount.WriteFile(p, rel(root+f.Path), f.Content, f.Mode)
	}
	for i, b := range t.Binds {
		if b.Dir {
			mkdirs(p, root+b.Target, made)
		} else {
			mkdirs(p, path.Dir(root+b.Target), made)
			mount.WriteFile(p, rel(root+b.Target), nil, 0o644)
		}
		views[i].Attach(p, rel(root+b.Target))
	}
	for _, m := range s.plan.Mounts {
		mkdirs(p, root+m.Guest, made)
	}
	if len(s.layers) > 0 {
		mount.Overlay(p, append([]string{rel(skeletonDir)}, layers.Lowers(s.layers)...), rel(rootDir), unix.MS_NOSUID|unix.MS_NODEV)
	}
	for i, m := range s.plan.Mounts {
		mount.Opened(int(s.kept[i].Fd())).Attach(p, rel(rootDir+m.Guest))
	}
}

// disk mounts the one file system of all writable places. What is made here is no part of
// what the guest may have.
func (s *stage) disk(p *spawn.Program) {
	l, places := s.plan.Limits, container.Places(s.plan.User.Home)
	mount.Filesystem(p, "tmpfs", rel(diskDir), unix.MS_NOSUID|unix.MS_NODEV, mount.TmpfsOptions(l.DiskBytes, l.Inodes+1+int64(len(places)), 0o755))
	for _, place := range places {
		at := rel(diskDir) + "/" + place.Dir
		mount.Mkdir(p, at, place.Mode)
		if place.Own {
			mount.Chown(p, at, s.plan.User.UID, s.plan.User.GID)
		}
	}
}

// become puts runsc in the process's place. Whatever numbers the descriptors have here, none
// is in another's place.
func (s *stage) become(p *spawn.Program) {
	const agent = wire.ConnFD + 1
	copied := func(fd int) spawn.Cell {
		return p.Result("copy descriptor", unix.SYS_FCNTL, fd, unix.F_DUPFD_CLOEXEC, agent+1)
	}
	runsc, socket, program := copied(s.runsc), copied(s.socket), copied(s.agent)
	p.CloseOnExecFrom(wire.ConnFD)
	p.Call("duplicate descriptor", unix.SYS_DUP3, socket.Ref(), wire.ConnFD, 0)
	p.Call("duplicate descriptor", unix.SYS_DUP3, program.Ref(), agent, 0)
	p.UnblockSignals()
	p.Call("exec runsc", unix.SYS_EXECVEAT, runsc.Ref(), "", arguments(wire.ConnFD, agent), []string{"PATH=/"}, unix.AT_EMPTY_PATH)
}

// mkdirs makes a directory of the new root, and those above it.
func mkdirs(p *spawn.Program, dir string, made map[string]bool) {
	if dir == "/" || made[dir] {
		return
	}
	mkdirs(p, path.Dir(dir), made)
	mount.Mkdir(p, rel(dir), 0o755)
	made[dir] = true
}

// rel turns a path of the new root into one below the working directory.
func rel(absolute string) string { return strings.TrimPrefix(absolute, "/") }
