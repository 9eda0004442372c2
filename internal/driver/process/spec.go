//go:build linux

package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/seccomp"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
)

// spec is what the table of system calls of a machine's first process is made from.
type spec struct {
	host     *host
	template image.Template
	uid, gid int // of programs; -1: they stay ours
	limits   []rlimit
	writable []string
	terminal bool // the host's terminals can be opened

	socket, lifeline int
}

type rlimit struct {
	resource int
	value    uint64
}

// program is the life of the first process until it becomes the supervisor.
func (s *spec) program() *spawn.Program {
	p := spawn.New(s.socket, s.lifeline, int(s.host.agent.Fd()))
	p.Call("set umask", unix.SYS_UMASK, 0o022)
	for _, l := range s.limits {
		p.Rlimit(l.resource, l.value)
	}
	if s.uid >= 0 {
		p.DropBounding()
		p.Setresgid(s.gid)
		p.Call("set user", unix.SYS_SETRESUID, supervisorID(s.uid), s.uid, s.uid)
		// A change of user made the memory that we still share with the host process
		// undumpable; that is not ours to change.
		p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		p.ClearCapabilities()
	}
	null := p.Result("open /dev/null", unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		p.Call("replace standard descriptor", unix.SYS_DUP3, null.Ref(), fd, 0)
	}
	p.Chdir("/")
	p.NoNewPrivs()
	s.landlock(p)
	s.filter(p)
	p.Setsid()
	s.become(p)
	return p
}

// landlock keeps the process, and all that it will start, to the machine's files.
func (s *spec) landlock(p *spawn.Program) {
	level := s.host.level
	attr := landlock.RulesetAttr(level)
	rules := p.Result("make Landlock rules", unix.SYS_LANDLOCK_CREATE_RULESET, attr, len(attr), 0)
	for _, t := range s.trees() {
		rights := t.use.FileRights(level)
		if t.dir {
			rights = t.use.Rights(level)
		}
		rule := append(landlock.PathBeneathAttr(rights, 0), 0, 0, 0, 0) // a Cell is eight bytes
		fd := p.CellAt(rule, landlock.PathBeneathFDOffset)
		p.Call("open "+t.path, unix.SYS_OPENAT, unix.AT_FDCWD, t.path, unix.O_PATH|unix.O_CLOEXEC, 0)
		p.SaveTo(fd)
		p.Call("add Landlock rule for "+t.path, unix.SYS_LANDLOCK_ADD_RULE, rules.Ref(), landlock.RulePathBeneath, rule, 0)
		p.Call("close "+t.path, unix.SYS_CLOSE, fd.Ref())
	}
	p.Call("apply Landlock rules", unix.SYS_LANDLOCK_RESTRICT_SELF, rules.Ref(), landlock.RestrictFlags(level))
	p.Call("close Landlock rules", unix.SYS_CLOSE, rules.Ref())
}

// filter installs the system-call filter, and sends its listener to the host.
func (s *spec) filter(p *spawn.Program) {
	listens := s.host.support.Listener == nil
	fd := p.Result("install system-call filter", unix.SYS_SECCOMP, seccomp.SetModeFilter, s.host.support.InstallFlags(listens), s.host.filter.Address())
	if listens {
		p.SendDescriptors(s.socket, []spawn.Cell{fd})
	}
}

// become puts the agent's program in the process's place, as a supervisor. Whatever
// numbers the descriptors have here, none is in another's place.
func (s *spec) become(p *spawn.Program) {
	const above = wire.ConnFD + 2
	copied := func(fd int) spawn.Cell {
		return p.Result("copy descriptor", unix.SYS_FCNTL, fd, unix.F_DUPFD_CLOEXEC, above)
	}
	agent, socket, lifeline := copied(int(s.host.agent.Fd())), copied(s.socket), copied(s.lifeline)
	p.CloseOnExecFrom(wire.ConnFD)
	p.Call("duplicate descriptor", unix.SYS_DUP3, socket.Ref(), wire.ConnFD, 0)
	p.Call("duplicate descriptor", unix.SYS_DUP3, lifeline.Ref(), wire.ConnFD+1, 0)
	p.UnblockSignals()
	args := []string{"pinfold-agent", "supervise", strconv.Itoa(s.host.level)}
	p.Call("exec", unix.SYS_EXECVEAT, agent.Ref(), "", args, agentEnvironment, unix.AT_EMPTY_PATH)
}

// agentEnvironment tells the Go runtime that the agent has use for one CPU only and none
// for a profile of its memory.
var agentEnvironment = []string{"GOMAXPROCS=1", "GODEBUG=memprofilerate=0"}

// tree is a part of the host's files and what it may be used for.
type tree struct {
	path string
	use  landlock.Use
	dir  bool
}

// devices are files that any program expects.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// publicEtc are files that everybody may read and that programs look for. The template
// makes up most of them; here the host's own are shown.
var publicEtc = []string{
	"/etc/debian_version", "/etc/group", "/etc/hosts", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release",
	"/etc/passwd", "/etc/protocols", "/etc/python3*", "/etc/R/Renviron", "/etc/R/ldpaths", "/etc/R/repositories", "/etc/services",
	"/etc/shells", "/etc/timezone",
}

// trees are all that the machine may use.
func (s *spec) trees() []tree {
	trees := shown(s.template)
	for _, w := range s.writable {
		trees = append(trees, tree{w, landlock.Write, true})
	}
	if s.terminal {
		trees = append(trees, tree{"/dev/ptmx", landlock.Devices, false}, tree{"/dev/pts", landlock.Devices, true})
	}
	return trees
}

// shown are the parts of the host's files that every machine may use.
func shown(t image.Template) []tree {
	trees := []tree{{"/proc", landlock.Read, true}}
	for _, b := range t.Binds {
		trees = append(trees, tree{b.Source, landlock.ReadExecute, b.Dir})
	}
	for _, pattern := range publicEtc {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			info, err := os.Stat(path)
			if err == nil && info.Mode().Perm()&0o004 != 0 && (info.IsDir() || info.Mode().IsRegular()) {
				trees = append(trees, tree{path, landlock.Read, info.IsDir()})
			}
		}
	}
	for _, path := range devices {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
			trees = append(trees, tree{path, landlock.Devices, false})
		}
	}
	return trees
}
