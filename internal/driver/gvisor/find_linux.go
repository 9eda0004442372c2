package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// howToGet says what to do where there is no runsc, or none that works.
var howToGet = sandbox.Advise("%s; a server has it named in %s, and pinfold run without one takes that of PATH or $PINFOLD_RUNSC", sandbox.HostCommand(container.HowToGetRunsc), sandbox.Config("drivers.gvisor.runsc"))

// program is a runsc, and what tells it from another one.
type program struct {
	path     string
	identity string
}

// proof is what came of trying one.
type proof struct {
	program
	version string
	refusal *sandbox.Error // nil: a machine was made and ended
	at      time.Time
}

// tryAgain is for how long a failure counts: it may have been the host's, which was busy.
const tryAgain = 10 * time.Second

// find looks for runsc.
func (d *Driver) find() (program, *sandbox.Error) {
	path, err := exec.LookPath(d.o.Runsc)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return program{}, unavailable("there is no runsc: " + sandbox.SafeText(err.Error(), 300)).WithAdvice(howToGet)
	}
	f, p, refusal := open(path)
	if refusal == nil {
		_ = f.Close()
	}
	return p, refusal
}

// open opens a runsc to execute it, and says which one it is. It becomes process 1 of every
// machine, as a user of the host's that is nobody: who else may write to it could do so in
// all of them.
func open(path string) (*os.File, program, *sandbox.Error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, program{}, unavailable("runsc cannot be opened: " + sandbox.SafeText(err.Error(), 300)).WithAdvice(howToGet)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, program{}, unavailable("runsc cannot be looked at: " + err.Error()).WithAdvice(howToGet)
	}
	var e *sandbox.Error
	shown := sandbox.SafeText(path, 200)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		e = unavailable(shown + " is no program").WithAdvice(howToGet)
	case st.Uid != 0 || st.Mode&0o022 != 0:
		e = unavailable(shown + " can be changed by others than root").WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo chown root:root " + quote(path) + " && sudo chmod 755 " + quote(path))})
	case st.Mode&0o001 == 0:
		e = unavailable(shown + " cannot be executed by everybody, and so not by a sandbox's own user").WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo chmod 755 " + quote(path))})
	}
	if e != nil {
		_ = f.Close()
		return nil, program{}, e
	}
	return f, program{path, fmt.Sprint(path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)}, nil
}

// quote writes a path so that a shell reads it as it is.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// prove says what is known of the runsc that there is, and tries one that is new: a machine
// that was made and ended is the only proof that the platform works here. It is tried once,
// as long as the file stays the same.
func (d *Driver) prove(ctx context.Context) proof {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, refusal := d.find()
	if refusal != nil {
		return proof{refusal: refusal}
	}
	if d.proved.identity == p.identity && (d.proved.refusal == nil || time.Since(d.proved.at) < tryAgain) {
		return d.proved
	}
	tried := proof{program: p, at: time.Now()}
	if tried.version, refusal = version(ctx, p.path); refusal == nil {
		refusal = d.try(ctx, p)
		if refusal != nil && errors.Is(refusal, os.ErrDeadlineExceeded) { // a host that stands still for so long is none without runsc
			refusal = d.try(ctx, p)
		}
	}
	tried.refusal = refusal
	if ctx.Err() == nil { // else it is not runsc's fault
		d.proved = tried
	}
	return tried
}

// try makes a machine and ends it.
func (d *Driver) try(ctx context.Context, p program) *sandbox.Error {
	common, err := d.prepare()
	if err != nil {
		return sandbox.AsError(err)
	}
	spec := sandbox.Spec{Code: "x", Driver: Name}.WithDefaults()
	host, err := image.Host(image.HostTree())
	if err != nil {
		return sandbox.AsError(err)
	}
	plan, err := driver.MakePlan(spec.Machine(), host, driver.Report{Driver: Name, Level: sandbox.LevelKernel, SwitchUser: true, Findings: common.findings("")}, fmt.Sprintf("probe-%d-%d", os.Getpid(), d.local.tries.Add(1)))
	if err != nil {
		return sandbox.AsError(err)
	}
	m, err := d.create(ctx, plan, common, p)
	if err == nil {
		err = m.Destroy(context.WithoutCancel(ctx))
	}
	if err == nil {
		return nil
	}
	e := unavailable("runsc makes no sandbox here: " + sandbox.AsError(err).Message)
	e.Err = err
	return e.WithAdvice(howToGet)
}

// versionTimeout bounds how long a program may take to say what it is.
const versionTimeout = 20 * time.Second

// version asks a runsc which one it is, and so whether it is one. It has nothing of ours but
// its name.
func version(ctx context.Context, path string) (string, *sandbox.Error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version") //nolint:gosec // root's own, and named by root
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"PATH=/usr/bin:/bin"}, "/", time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	var text []byte
	if err == nil {
		text, _ = io.ReadAll(io.LimitReader(out, 4<<10))
		_, _ = io.Copy(io.Discard, io.LimitReader(out, 1<<20))
		_ = out.Close()
		err = cmd.Wait()
	}
	first, _, _ := strings.Cut(string(text), "\n")
	said, ok := strings.CutPrefix(first, "runsc version ")
	if err == nil && !ok {
		err = errors.New("it answers " + fmt.Sprintf("%q", sandbox.SafeText(first, 100)))
	}
	if err != nil {
		return "", unavailable(sandbox.SafeText(path, 200) + " is no runsc that works here: " + sandbox.SafeText(err.Error(), 200)).WithAdvice(howToGet)
	}
	return sandbox.SafeText(strings.TrimSpace(said), 100), nil
}
