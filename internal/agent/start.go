//go:build linux

package agent

import (
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// start runs one process from its start to the end of its output.
func (a *agent) start(c *channel, req wire.Request) wire.Outcome {
	pipes, err := a.newPipes(req.Start)
	if errors.Is(err, unix.EACCES) && req.Start.Terminal != nil {
		return failed(fault(sandbox.CodeResourceUnavailable, "there are no terminals in this sandbox: those of the host are its user's as well"))
	}
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer pipes.close()
	p, refusal := a.startProcess(c, req.Start, pipes)
	if refusal != nil {
		return failed(refusal)
	}
	c.attach(p, pipes.master())
	pipes.closeTheirs()
	c.event(wire.Event{Kind: wire.EventStarted, PID: p.pid})
	s := startStreams(c, pipes)
	exit := <-p.exited
	c.event(wire.Event{Kind: wire.EventExited, Exit: &exit})
	return wire.Outcome{Held: s.drain()}
}

// busyTries bounds how often a start is tried again because the program's file
// was still open for writing (in a process that another start is just making).
const busyTries = 8

// startProcess makes the process that the request describes.
func (a *agent) startProcess(c *channel, req *wire.StartRequest, pipes *pipes) (*child, *wire.Fault) {
	dir, err := a.openDir(req.Dir)
	if err != nil {
		f := a.fileFault(err)
		f.Message, f.Step = sandbox.SafeText(req.Dir, 120)+": "+f.Message, wire.StepOpenDir
		return nil, f
	}
	defer sysClose(dir) //nolint:errcheck // a directory
	program, refusal := lookup(dir, req.Args[0], searchPath(req.Env))
	if refusal != nil {
		return nil, refusal
	}
	pause := time.Millisecond
	for try := 1; ; try++ {
		p, err := a.execProcess(c, req, program, dir, pipes)
		if err == nil {
			return p, nil
		}
		if try == busyTries || !errors.Is(err, unix.ETXTBSY) {
			return nil, startFault(req.Args[0], err)
		}
		time.Sleep(pause)
		pause *= 2
	}
}

// execProcess makes a process and waits until its exec has succeeded. For a host that is
// gone it makes none: what such a one had started has been killed, perhaps.
func (a *agent) execProcess(ch *channel, req *wire.StartRequest, program string, dir int, pipes *pipes) (*child, error) {
	var made *spawn.Child
	c, err := a.reap.start(func() (int, error) {
		if ch.abandoned() {
			return 0, unix.ECANCELED
		}
		var err error
		made, err = a.program(req, program, dir, pipes).Start(spawn.Clone{})
		if err != nil {
			return 0, err
		}
		return made.PID, nil
	})
	if err != nil {
		return nil, err
	}
	if err := made.WaitExec(); err != nil {
		a.reap.forget(c)
		return nil, err
	}
	_ = sysClose(made.Pidfd) // the table of the reaper names the process
	return c, nil
}

// timerSlack is the kernel's own default, in nanoseconds. The agent's may be
// another, which its children would inherit. A kernel in user space may know none.
const timerSlack = 50_000

// program is the table of system calls of a new process.
func (a *agent) program(req *wire.StartRequest, program string, dir int, pipes *pipes) *spawn.Program {
	p := spawn.New(dir, pipes.theirs[0], pipes.theirs[1], pipes.theirs[2])
	p.Setsid()
	for _, l := range req.Rlimits {
		p.Rlimit(l.Resource, l.Value)
	}
	if len(req.CPUs) > 0 {
		p.Optional("set processors", unix.SYS_SCHED_SETAFFINITY, 0, len(req.CPUs), req.CPUs)
	}
	if a.hello.SwitchUser {
		p.DropBounding(a.unbound...)
		p.Setresgid(req.GID)
		p.Setresuid(req.UID)
		p.ClearCapabilities()
	}
	p.Call("change directory", unix.SYS_FCHDIR, dir)
	for fd, from := range pipes.theirs {
		p.Dup2(from, fd)
	}
	if pipes.terminal {
		p.Call("take terminal", unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	p.CloseOnExecFrom(3)
	if a.sealModes {
		refuseOpenat2(p)
	}
	if a.reap.alone {
		dieTogether(p)
	}
	p.Optional("set timer slack", unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	p.UnblockSignals()
	p.Exec(program, req.Args, req.Env)
	return p
}

// openDir opens a working directory. Links are followed, but nothing under
// /proc is accepted: its magic links lead to other processes' directories.
func (a *agent) openDir(dir string) (int, error) {
	rel, err := a.relative(dir)
	if err != nil {
		return -1, err
	}
	fd, err := a.openAt(a.root, rel, unix.O_PATH|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return -1, err
	}
	var fs unix.Statfs_t
	if err := sysFstatfs(fd, &fs); err != nil || fs.Type == unix.PROC_SUPER_MAGIC {
		_ = sysClose(fd)
		return -1, unix.EACCES
	}
	return fd, nil
}

// defaultPath is the PATH of an environment that has none.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

func searchPath(env []string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			return v
		}
	}
	return defaultPath
}

// lookup finds the file to execute. A name with a slash is relative to dir.
func lookup(dir int, name, searchPath string) (string, *wire.Fault) {
	if name == "" {
		return "", fault(sandbox.CodeCommandNotFound, "the command is empty")
	}
	if strings.Contains(name, "/") {
		err := runnable(dir, name)
		return name, lookupFault(name, err)
	}
	var found error = unix.ENOENT
	for p := range strings.SplitSeq(searchPath, ":") {
		candidate := path.Join(p, name)
		if p == "" {
			candidate = "./" + name
		}
		err := runnable(dir, candidate)
		if err == nil {
			return candidate, nil
		}
		if !missing(err) {
			found = err
		}
	}
	return "", lookupFault(name, found)
}

// runnable says whether a path is a regular file with an execute bit. Whether
// this user may execute it is the kernel's decision.
func runnable(dir int, p string) error {
	var st unix.Stat_t
	if err := sysFstatat(dir, p, &st, 0); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		return unix.EACCES
	}
	return nil
}

func missing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

func lookupFault(name string, err error) *wire.Fault {
	switch {
	case err == nil:
		return nil
	case missing(err):
		return fault(sandbox.CodeCommandNotFound, name+": no such command in the sandbox")
	}
	return &wire.Fault{Code: sandbox.CodeCommandNotRunnable, Message: name + ": " + err.Error(), Step: "lookup"}
}
