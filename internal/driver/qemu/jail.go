//go:build linux

package qemu

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
)

// jail is what the table of system calls of a QEMU process is made from.
type jail struct {
	host  *host
	uid   int
	join  []int // cgroup v1: files to write "0" to
	files []int // its descriptors from firstFile on
	out   int   // what it prints, and its machine's console
	args  []string
	kvm   int // the device's number; 0: there is none
}

// firstFile is the number of QEMU's first descriptor beside the usual three.
const firstFile = 3

// namespaces are QEMU's own. Its user is the host's, with an id that nobody else has.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// scratch is where the new root is built.
const scratch = "/tmp"

// program is the life of the process until it becomes QEMU.
func (j *jail) program() *spawn.Program {
	keep := append(append([]int{j.out}, j.files...), j.join...)
	p := spawn.New(keep...)
	for _, fd := range j.join {
		p.Call("join cgroup", unix.SYS_WRITE, fd, "0", 1)
	}
	p.Call("set umask", unix.SYS_UMASK, 0o077)
	j.root(p)
	p.Call("new cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.Call("set host name", unix.SYS_SETHOSTNAME, "qemu", 4)
	for _, l := range limits {
		p.Rlimit(l.resource, l.value)
	}
	j.identity(p)
	j.descriptors(p)
	p.Call("install system-call filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, j.host.filter.Address())
	p.UnblockSignals()
	p.Exec(j.host.program, j.args, []string{"PATH=/usr/bin", "LC_ALL=C", "G_SLICE=always-malloc"})
	return p
}

// shown is what QEMU sees of the host: its own program, libraries and firmware.
var shown = []string{"/usr", "/lib", "/lib64", "/etc/ld.so.cache"}

// root gives the process a root of its own.
func (j *jail) root(p *spawn.Program) {
	mount.Private(p)
	type view struct {
		path string
		dir  bool
		tree mount.Tree
	}
	var views []view
	links := map[string]string{}
	for _, path := range shown {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if to, err := os.Readlink(path); err == nil {
				links[path] = to
			}
			continue
		}
		tree := mount.Clone(p, path, info.IsDir(), mount.ReadOnly|mount.NoSuid|mount.NoDev)
		views = append(views, view{path, info.IsDir(), tree})
	}
	mount.Filesystem(p, "tmpfs", scratch, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, mount.TmpfsOptions(64<<10, 32, 0o755))
	p.Chdir(scratch)
	mount.Mkdir(p, "proc", 0o755)
	mount.Mkdir(p, "etc", 0o755)
	for path, to := range links {
		mount.Symlink(p, to, path[1:])
	}
	for _, v := range views {
		if v.dir {
			mount.Mkdir(p, v.path[1:], 0o755)
		} else {
			mount.Mkdir(p, filepath.Dir(v.path)[1:], 0o755)
			mount.WriteFile(p, v.path[1:], nil, 0o644)
		}
		v.tree.Attach(p, v.path[1:])
	}
	if j.kvm != 0 { // a file of its own, since the host's is not everybody's
		mount.Mkdir(p, "dev", 0o755)
		mount.Filesystem(p, "tmpfs", "dev", unix.MS_NOSUID|unix.MS_NOEXEC, mount.TmpfsOptions(4<<10, 4, 0o755))
		p.Call("make /dev/kvm", unix.SYS_MKNODAT, unix.AT_FDCWD, "dev/kvm", unix.S_IFCHR|0o666, j.kvm)
		p.Call("share /dev/kvm", unix.SYS_FCHMODAT, unix.AT_FDCWD, "dev/kvm", 0o666) // the umask minded
		mount.Restrict(p, "dev", mount.ReadOnly)
	}
	mount.Filesystem(p, "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	mount.Pivot(p)
	mount.Restrict(p, "/", mount.ReadOnly)
}

// limits hold for QEMU.
var limits = []struct {
	resource int
	value    uint64
}{
	{unix.RLIMIT_CORE, 1}, // no core dumps, not even into a pipe
	{unix.RLIMIT_NOFILE, 128},
	{unix.RLIMIT_MEMLOCK, 64 << 10},
	{unix.RLIMIT_MSGQUEUE, 0},
	{unix.RLIMIT_SIGPENDING, 512},
	{unix.RLIMIT_NICE, 0},
	{unix.RLIMIT_RTPRIO, 0},
}

// identity makes the process a user that nobody else is, with no rights.
func (j *jail) identity(p *spawn.Program) {
	p.DropBounding()
	p.Setresgid(j.uid)
	p.Setresuid(j.uid)
	// A change of user made the memory that we still share with the host process
	// undumpable; that is not ours to change.
	p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	p.ClearCapabilities()
	p.Call("die with the host", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0) // a change of user unsets it
	p.Call("take small pages", unix.SYS_PRCTL, unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)                // of a machine that waits most is not used
	p.NoNewPrivs()
	p.Setsid()
}

// descriptors puts them in their places. Whatever numbers they have here, none is in
// another's place.
func (j *jail) descriptors(p *spawn.Program) {
	above := firstFile + len(j.files)
	copied := func(fd int) spawn.Cell {
		return p.Result("copy descriptor", unix.SYS_FCNTL, fd, unix.F_DUPFD_CLOEXEC, above)
	}
	out := copied(j.out)
	files := make([]spawn.Cell, len(j.files))
	for i, fd := range j.files {
		files[i] = copied(fd)
	}
	p.CloseOnExecFrom(0)
	for fd := range firstFile {
		p.Call("duplicate descriptor", unix.SYS_DUP3, out.Ref(), fd, 0)
	}
	for i, file := range files {
		p.Call("duplicate descriptor", unix.SYS_DUP3, file.Ref(), firstFile+i, 0)
	}
}
