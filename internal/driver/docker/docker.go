// Package docker makes sandboxes with the Docker Engine's API: each is one container of
// an image, with Pinfold's agent as its first process. The image is not changed: the
// agent, the writable places and what programs are shown of a computer are mounted over
// its read-only root.
//
// # A machine
//
// It is a directory of the driver's (Options.StateDir/ID), which is made before the
// container and removed after it:
//
//	machine.json  what it was made from, its secret, whose it is, its first process
//	in/           what the container has at /.pinfold: the agent, and once, until the agent
//	              has asked there, a socket of ours
//	s             the socket on which the agent listens for hosts
//	disk/         a tmpfs as large as the disk may be: all writable places
//	shown/        the files of /proc and /sys that are the sandbox's own
//	run/          what the container has at /run: nothing
//	seccomp.json  our list of system calls, for an engine that reads it from a file
//
// The agent fetches its listener, a secret and the filter of system calls from the socket
// in in/ before it does anything else (package agent, Fetch). So nothing that a guest
// could use is left in the container, and a container needs no descriptors from us, which
// the engine could not pass on. As the agent is dialled by a name, and everything else is
// the engine's, a machine outlives this process, and is adopted by the next one.
//
// # Templates
//
// The template host is the configured image. Of another one the engine gets a copy with the
// first machine (copies_linux.go), which it keeps by a hash of what is in it.
//
// # What the engine has to be
//
// One that runs as root on this host, and so do we: we mount the disk, read the counters
// of the container's control group and move its memory limit as the native driver does,
// and watch its first process. Anything else (an engine on another machine or in a virtual
// one, as on macOS; a rootless one; remapped users) is refused in the report.
//
// The package says what containers are made of (container.go) on any system; the rest is
// Linux's. Nothing connects to an engine until somebody asks for a report or a machine.
package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Name is the driver's name in requests and results.
const Name = "docker"

// Options configure the driver.
type Options struct {
	// Engine is where the engine listens ("unix:///run/user/docker.sock"). Empty: what
	// DOCKER_HOST says, or Docker's own default.
	Engine string
	// Image is what machines of the template host show, a name or an id that the engine has.
	// It is not fetched. It needs nothing for us; what programs need in it is theirs.
	Image string
	// Programs are those that somebody may look up in it.
	Programs []string
	// Runtime is one of the engine's ("runsc"); empty: its default. It must be one whose
	// containers can connect to a socket of the host's.
	Runtime string
	// StateDir is where machines are known, on a file system of this host that is no
	// network's; machines of earlier processes are found there. A short path: sockets are
	// in it.
	StateDir string
	// Agent returns the agent's executable for this host's architecture.
	Agent func() ([]byte, error)
}

// maxStateDir is the longest StateDir: a socket's name has at most 107 bytes, and a
// machine's 40.
const maxStateDir = 107 - len("//") - 40 - len(inDir+"/host")

// Driver makes machines. It is safe for concurrent use.
type Driver struct {
	o       Options
	timeout time.Duration // for an engine that is asked for what it knows

	mu     sync.Mutex
	conn   *client.Client // nil until it is needed
	local  local
	copies copies
	image  *image.Template // what the configured image was seen to show last
}

// New returns the driver. It does nothing yet.
func New(o Options) *Driver { return &Driver{o: o, timeout: lookTimeout} }

// lookTimeout is many times what an engine takes on a busy machine.
const lookTimeout = 20 * time.Second

// Name returns "docker".
func (d *Driver) Name() string { return Name }

// engine returns the client of the engine's API. It connects when it is used.
func (d *Driver) engine() (*client.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		return d.conn, nil
	}
	where := client.FromEnv
	if d.o.Engine != "" {
		where = client.WithHost(d.o.Engine)
	}
	c, err := client.New(where)
	if err != nil {
		return nil, (&sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "cannot tell where the Docker engine listens: " + err.Error()}).
			WithHint("unset DOCKER_HOST, or have it name the engine's socket: unix:///var/run/docker.sock")
	}
	d.conn = c
	return c, nil
}

// Close closes what the driver holds open. Machines go on.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.conn != nil {
		err = d.conn.Close()
		d.conn = nil
	}
	return errors.Join(err, d.closeLocal())
}

// Probe reports what the engine can enforce. It asks it anew each time.
func (d *Driver) Probe(ctx context.Context, t image.Template) (driver.Report, error) {
	r := driver.Report{Driver: Name, Level: sandbox.LevelContainer}
	asking, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	s, refusal := d.look(asking, t)
	switch {
	case ctx.Err() != nil:
		return r, failed("ask the Docker engine", context.Cause(ctx))
	case refusal != nil:
		r.Blocked = refusal
	default:
		r.Findings, r.Template = s.findings(), d.shown(t, s)
	}
	return r, nil
}

// noEngine says why nobody answers, and what would help: one that is installed and does
// not run has left its program or its socket.
func noEngine(where string, err error) *sandbox.Error {
	e := &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "no Docker engine answers at " + sandbox.SafeText(where, 200) + ": " + sandbox.SafeText(err.Error(), 300), Err: err}
	path, local := strings.CutPrefix(where, "unix://")
	_, missing := os.Stat(path)
	switch {
	case !local:
		return e.WithHint("start the engine, or unset DOCKER_HOST")
	case errors.Is(err, fs.ErrPermission):
		return e.WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo -s")})
	case missing != nil && !installed():
		return e.WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo apt-get install docker.io")})
	}
	return e.WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo systemctl start docker")})
}

func failed(step string, err error) *sandbox.Error {
	return sandbox.Errorf(sandbox.CodeSetupFailed, "cannot %s: %w", step, err).WithHint("look at what the engine says: docker info, and its log")
}

func installed() bool {
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin"} {
		if _, err := os.Stat(dir + "/dockerd"); err == nil {
			return true
		}
	}
	return false
}
