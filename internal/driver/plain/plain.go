//go:build linux

// Package plain is a driver for tests: its machines are processes like any other, with
// the real agent, and isolate nothing. What they have of their own is a view of the host
// in which there is a home, and a process tree that ends as a whole. They outlive the
// process that made them, and their agent can be dialled again: what drivers of
// containers and virtual machines can do, and the native one cannot.
//
// It must not be given code that nobody has read, and refuses to work unless a test
// says otherwise. It needs root.
package plain

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/wire/resume"
	"pinfold/sandbox"
)

// Name is the driver's name in requests and results.
const Name = "plain"

// Options configure the driver.
type Options struct {
	StateDir string // what is known of each machine; machines of earlier processes are found there
	Agent    string // the agent's executable
	Allow    bool   // it is a test that asks
	// Broken may return something else for a connection to an agent, such as one that
	// breaks. May be nil.
	Broken func(net.Conn) io.ReadWriteCloser
}

// Driver makes machines. It is safe for concurrent use.
type Driver struct{ o Options }

// New returns the driver.
func New(o Options) *Driver { return &Driver{o} }

// level is a claim for tests, which choose among drivers.
const level = sandbox.LevelNamespace

// Name returns "plain".
func (d *Driver) Name() string { return Name }

// Probe says that nothing is enforced.
func (d *Driver) Probe(_ context.Context, t image.Template) (driver.Report, error) {
	r := driver.Report{Driver: Name, Level: level, SwitchUser: true, Blocked: t.OnlyHost(Name)}
	if !d.o.Allow || os.Geteuid() != 0 {
		r.Blocked = &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "the plain driver isolates nothing; it is for tests of root's"}
	}
	for _, f := range sandbox.Features() {
		r.Findings = append(r.Findings, driver.Finding{Feature: f.Name, Answer: driver.No, Because: "a plain process is not isolated", Fix: sandbox.Text("take another driver")})
	}
	return r, nil
}

// process is one of the host's. Another one may get its number, but has not begun at the
// same tick of the kernel's clock.
type process struct {
	PID   int
	Begun int64
}

// machine is one process and what it has started. Its exported fields are what is
// recorded of it, before it starts and when it is complete.
type machine struct {
	Plan   driver.Plan
	Secret resume.Secret
	Owner  process // who makes it
	Agent  process // zero: it has not started

	driver *Driver
	dir    string
	dead   chan struct{}
	kill   chan struct{} // of one value: Destroy has ended it
	death  driver.Death  // valid once dead is closed
}

// record is where a machine's own description lies in its directory.
const record = "machine.json"

func (m *machine) save() error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.dir, record+".new"), b, 0o600); err != nil {
		return err
	}
	return os.Rename(filepath.Join(m.dir, record+".new"), filepath.Join(m.dir, record))
}

// Create starts the agent.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	m := d.machine(plan.ID)
	m.Plan, m.Owner = plan, named(os.Getpid())
	_, _ = rand.Read(m.Secret[:]) // which never fails
	if err := os.MkdirAll(d.o.StateDir, 0o700); err != nil {
		return nil, failed("make the directory of machines", err)
	}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, failed("make the machine's directory", err)
	}
	if err := errors.Join(m.save(), m.start(), ctx.Err()); err != nil {
		_ = m.Destroy(ctx)
		return nil, failed("start the agent", err)
	}
	return m, nil
}

func (d *Driver) machine(id string) *machine {
	return &machine{driver: d, dir: filepath.Join(d.o.StateDir, id), dead: make(chan struct{}), kill: make(chan struct{}, 1)}
}

func failed(step string, err error) error {
	return sandbox.Errorf(sandbox.CodeSetupFailed, "cannot %s: %w", step, err).WithHint("look at the test that uses the plain driver")
}

// places gives the agent a home and places for files of its own, and becomes it.
const places = `set -e
for d in /home /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 none $d; done
mkdir /home/user; chown 1000:1000 /home/user
mount -t proc proc /proc
exec /proc/self/fd/5 listen`

// start starts the agent, which listens on a socket in the machine's directory.
func (m *machine) start() error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.socket(), Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	listener, err := l.File()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	secret, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = secret.Close(), theirs.Close() }()
	agent, err := os.Open(m.driver.o.Agent)
	if err != nil {
		return err
	}
	defer func() { _ = agent.Close() }()
	cmd := exec.Command("/bin/sh", "-c", places) //nolint:noctx // it outlives us
	cmd.Env = []string{"GOMAXPROCS=1", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = []*os.File{listener, secret, agent}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.Agent = named(cmd.Process.Pid)
	go func() {
		_ = cmd.Wait() // how it ended is no matter
		m.ended()
	}()
	if err := m.save(); err != nil {
		return err
	}
	_, err = theirs.Write(m.Secret[:]) // without which it ends: so none lives that is not recorded
	return err
}

// socket is short: a socket's name has at most 107 bytes.
func (m *machine) socket() string { return filepath.Join(m.dir, "s") }

// ended says how the machine has ended.
func (m *machine) ended() {
	m.death = driver.Death{Kind: driver.DeathAgent, Evidence: "the agent ended by itself"}
	select {
	case <-m.kill:
		m.death = driver.Death{Kind: driver.DeathDestroyed, Evidence: "destroyed by its owner"}
	default:
	}
	close(m.dead)
}
