//go:build linux

package native

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
)

// # /proc
//
// A sandbox's /proc shows its own processes and, of all else that the kernel would
// show there, nothing (subset=pid). But programs find out in /proc how many
// processors and how much memory there are, and since when. So a few names have
// files of the sandbox's own laid over them, made up to its limits.
//
// With subset=pid there is nothing that they could be laid over. So /proc is
// mounted with everything, the names are covered, and then the same instance is told
// subset=pid: from then on the kernel looks up no other name in it, and forgets
// those that were looked up before and are not in use. Those that something is
// mounted on are in use, and lead to what is mounted there. This holds by
// construction, not by a list of what to hide: a name of the host's that nobody
// covered does not exist. The conformance test "nothing else of the host's
// computer" tries every name of the host's /proc.
//
// The files lie in the sandbox's tmpfs, below the mount of /proc, where no path
// leads. The host can write to them, through a mount of the tmpfs that nobody else
// has; inside they are on read-only mounts.

const (
	procFlags   = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	procForEach = "hidepid=invisible"
	procOptions = procForEach + ",subset=pid"
)

// procLinks are names of /proc that lead to what each process has of its own.
var procLinks = []image.Link{
	{Target: "self/mounts", Path: "/proc/mounts"},
	{Target: "self/net", Path: "/proc/net"},
}

// procOwn are names of /proc that are shown as they are: the kernel's version, as
// uname(2) says it, and random numbers.
const (
	procVersion = "proc/version"
)

// layout is how the files of image.Machine lie in the tmpfs.
type layout struct {
	dirs  []string // parents first
	files []image.File
	links []image.Link // hard ones, to files of the same content: what they are of, and their path
	names []string     // of /proc, that are covered
}

// ownFiles are those that each sandbox has its own of.
var ownFiles = []string{image.Stat, image.Meminfo, image.Loadavg, image.Uptime, image.BootID}

// layOut makes one file of each content.
func layOut(files []image.File) layout {
	l := layout{}
	known := map[string]bool{"/": true, "/proc": true}
	first := map[string]string{}
	for _, f := range files {
		l.above(f.Path, known)
		if same, ok := first[string(f.Content)]; ok {
			l.links = append(l.links, image.Link{Target: same, Path: f.Path})
			continue
		}
		first[string(f.Content)] = f.Path
		l.files = append(l.files, f)
	}
	for _, own := range ownFiles {
		l.above(own, known)
	}
	for _, link := range procLinks {
		l.above(link.Path, known)
	}
	return l
}

// above adds the directories above a file, and the name in /proc that it is below.
func (l *layout) above(file string, known map[string]bool) {
	if rest, ok := strings.CutPrefix(file, "/proc/"); ok {
		if name, _, _ := strings.Cut(rest, "/"); !slices.Contains(l.names, name) {
			l.names = append(l.names, name)
		}
	}
	var missing []string
	for d := path.Dir(file); !known[d]; d = path.Dir(d) {
		known[d] = true
		missing = append(missing, d)
	}
	slices.Reverse(missing)
	l.dirs = append(l.dirs, missing...)
}

// inodes is how many of them the layout takes.
func (l *layout) inodes() int64 {
	return int64(len(l.dirs) + len(l.files) + len(l.links) + len(procLinks))
}

// make makes the files, and the sandbox's own.
func (l *layout) make(p *spawn.Program, own []image.File) {
	for _, d := range l.dirs {
		mount.Mkdir(p, rel(d), 0o755)
	}
	for _, f := range slices.Concat(l.files, own) {
		mount.WriteFile(p, rel(f.Path), f.Content, f.Mode)
	}
	for _, link := range l.links {
		mount.Link(p, rel(link.Target), rel(link.Path))
	}
	for _, link := range procLinks {
		mount.Symlink(p, link.Target, rel(link.Path))
	}
}

// mountProc mounts /proc over the files that are to be seen in it, or, where the root is
// at another path, beside them, and lays them over it.
func (l *layout) mountProc(p *spawn.Program, at string) {
	proc := at + "proc"
	below := p.Result("open proc", unix.SYS_OPENAT, unix.AT_FDCWD, "proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	mount.Filesystem(p, "proc", proc, procFlags, procForEach)
	uuid := mount.Clone(p, at+rel(image.UUID), false, 0)
	mount.Clone(p, at+procVersion, false, 0).Attach(p, at+procVersion)
	for _, name := range l.names {
		mount.CloneAt(p, below, name).Attach(p, proc+"/"+name)
	}
	uuid.Attach(p, at+rel(image.UUID))
	p.Call("close proc", unix.SYS_CLOSE, below.Ref())
	mount.Filesystem(p, "proc", proc, procFlags|unix.MS_REMOUNT, procOptions)
	mount.RestrictTree(p, proc, mount.ReadOnly|mount.NoSuid|mount.NoDev|mount.NoExec)
}
