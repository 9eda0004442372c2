package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/seccomp"
	"pinfold/internal/wire/resume"
	"pinfold/sandbox"
)

// local is what all machines of a driver have in common. The driver's lock guards it.
type local struct {
	agent   string // a file with the agent, of which each machine has a link
	profile string // our seccomp list, as the engine wants it
	filter  []byte // and as the kernel does, with its conditions
	facts   image.HostFacts
	half    []*machine // half made, and not removed when that was tried: their engine was gone
}

// usableHere says who cannot make machines: the disk is a mount of ours.
func usableHere() *sandbox.Error {
	if os.Geteuid() != 0 {
		return unavailable("the docker driver needs root: it mounts each sandbox's disk, and limits its memory by what that holds").
			WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo -s")})
	}
	return nil
}

// prepare makes what all machines have in common, once.
func (d *Driver) prepare() (local, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.local.agent != "" {
		return d.local, nil
	}
	var l local
	profile, err := seccomp.Profile(seccomp.Options{})
	if err != nil {
		return l, failed("write the seccomp profile", err)
	}
	program, err := seccomp.Compile(seccomp.Options{})
	if err != nil {
		return l, failed("compile the filter of system calls", err)
	}
	l.profile = string(profile)
	for _, i := range program {
		l.filter = append(l.filter, i.Bytes()...)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return l, failed("ask for the kernel's release", err)
	}
	l.facts = image.LookAtHost(os.DirFS("/"), runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]))
	if l.agent, err = d.writeAgent(); err != nil {
		return l, failed("write the agent", err)
	}
	l.half = d.local.half
	d.local = l
	return l, nil
}

// agentPrefix begins the names of the drivers' files with the agent; whose each is follows.
const agentPrefix = ".agent-"

// writeAgent writes the agent into a file that can be executed, and not be read: who
// cannot read it has no way to lock or watch it, although all machines share it.
func (d *Driver) writeAgent() (string, error) {
	program, err := d.o.Agent()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(d.o.StateDir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(d.o.StateDir, fmt.Sprintf("%s%s-", agentPrefix, named(os.Getpid())))
	if err != nil {
		return "", err
	}
	_, err = f.Write(program)
	if err = errors.Join(err, f.Chmod(0o111), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// closeLocal removes it. Machines have their own names for the file.
func (d *Driver) closeLocal() error {
	var err error
	if d.local.agent != "" {
		err = os.Remove(d.local.agent)
		d.local = local{}
	}
	return err
}

// machine is one container and what is on the host for it. Its exported fields are what
// is recorded of it: before there is a container, and when it is complete.
type machine struct {
	Plan      driver.Plan
	Secret    resume.Secret
	Owner     process // who makes it, or has adopted it
	Agent     process // the container's first; zero: it is not complete
	Container string  // its id

	driver *Driver
	dir    string
	meter  container.Meter
	dead   chan struct{}
	death  driver.Death // valid once dead is closed

	ending     sync.Mutex // held by Destroy
	pausing    sync.Mutex // held by Pause and Resume
	destroying chan struct{}
	once       sync.Once // closes destroying
}

func (d *Driver) machine(id string) *machine {
	return &machine{driver: d, dir: filepath.Join(d.o.StateDir, id), dead: make(chan struct{}), destroying: make(chan struct{})}
}

// Create makes the container. What is asked of the engine is always waited for, however
// ctx ends: else it might make what nobody knows of any more.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	if len(plan.Mounts) > plan.Kept {
		return nil, failed("show directories of the host", errors.New("the docker driver does not do that yet")).
			WithAdvice(sandbox.Advise("copy in what is needed, or %s", sandbox.Set("driver", "native")))
	}
	common, err := d.prepare()
	if err != nil {
		return nil, err
	}
	d.removeHalf(ctx)
	m := d.machine(plan.ID)
	m.Plan, m.Owner = plan, named(os.Getpid())
	_, _ = rand.Read(m.Secret[:]) // which never fails
	if err := m.make(ctx, common); err != nil {
		if gone := m.remove(context.WithoutCancel(ctx)); gone != nil {
			d.mu.Lock()
			d.local.half = append(d.local.half, m)
			d.mu.Unlock()
			return nil, failed("make a machine, nor remove what there is of it", errors.Join(err, gone))
		}
		return nil, err
	}
	return m, nil
}

// removeHalf tries to remove what earlier calls of Create have left. Whatever is left then
// waits for the next one, or for Leftovers in another process.
func (d *Driver) removeHalf(ctx context.Context) {
	d.mu.Lock()
	half := d.local.half
	d.local.half = nil
	d.mu.Unlock()
	half = slices.DeleteFunc(half, func(m *machine) bool { return m.remove(ctx) == nil })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.local.half = append(d.local.half, half...)
}

// make makes the machine's directory, and then what is in it and the container, step by
// step.
func (m *machine) make(ctx context.Context, common local) error {
	h := &handover{}
	defer h.close()
	has, err := m.driver.haveImage(ctx, m.Plan.Template)
	if known := new(sandbox.Error); errors.As(err, &known) {
		return known
	}
	if err != nil {
		return failed("give the engine the template", err)
	}
	defer has()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"make the machine's directory", m.mkdir},
		{"mount the machine's disk", m.mountDisk},
		{"write what the machine shows", func() error { return m.show(common.facts) }},
		{"put the agent into the machine", func() error { return os.Link(common.agent, filepath.Join(m.dir, inDir, "agent")) }},
		{"listen for the agent", func() error { return h.listen(m) }},
		{"write the seccomp profile", func() error { return os.WriteFile(m.profile(), []byte(common.profile), 0o600) }},
		{"create the container", func() error { return m.create(ctx, common.profile) }},
		{"start the container", func() error { return m.start(ctx) }},
		{"find the container's processes", m.find},
		{"tell the agent what it needs", func() error { return h.tell(ctx, m, common.filter) }},
		{"see the sandbox enforced in the container", m.verify},
		{"measure the machine's disk", func() error { return m.measure(0) }},
		{"record the machine", m.save},
	} {
		if err := ctx.Err(); err != nil {
			return failed(step.what, context.Cause(ctx))
		}
		if err := step.do(); err != nil {
			return failed(step.what, err)
		}
	}
	return nil
}

// mkdir makes the directory under another name first: whoever looks for leftovers finds
// it with its record or not at all.
func (m *machine) mkdir() error {
	if !filepath.IsLocal(m.Plan.ID) || filepath.Base(m.Plan.ID) != m.Plan.ID || strings.HasPrefix(m.Plan.ID, ".") {
		return fmt.Errorf("%q is no name of a directory", m.Plan.ID)
	}
	final := m.dir // not ours before it is there
	m.dir = filepath.Join(m.driver.o.StateDir, fmt.Sprintf("%s%s-%s", newPrefix, m.Owner, m.Plan.ID))
	for dir, mode := range map[string]os.FileMode{"": 0o700, inDir: 0o711, diskDir: 0o755, shownDir: 0o755, runDir: 0o755} {
		if err := os.MkdirAll(filepath.Join(m.dir, dir), mode); err != nil {
			return err
		}
	}
	if err := m.save(); err != nil {
		return err
	}
	if err := os.Rename(m.dir, final); err != nil {
		return err
	}
	m.dir = final
	return nil
}

const newPrefix = ".new-"

// mountDisk mounts the one file system of all writable places. What is made here is no
// part of what the guest may have.
func (m *machine) mountDisk() error {
	at, l := m.disk(), m.Plan.Limits
	places := container.Places(m.Plan.User.Home)
	options := mount.TmpfsOptions(l.DiskBytes, l.Inodes+1+int64(len(places)), 0o755)
	if err := unix.Mount("pinfold", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	for _, p := range places {
		dir := filepath.Join(at, p.Dir)
		err := unix.Mkdir(dir, p.Mode)
		if err == nil {
			err = unix.Chmod(dir, p.Mode) // whatever the umask
		}
		if err == nil && p.Own {
			err = unix.Chown(dir, m.Plan.User.UID, m.Plan.User.GID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// timeout bounds what is asked of the engine.
const timeout = 2 * time.Minute

// asked is a context for a question to the engine that goes on when nobody waits.
func asked(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

func (m *machine) create(ctx context.Context, profile string) error {
	engine, err := m.driver.engine()
	if err != nil {
		return err
	}
	ctx, cancel := asked(ctx)
	defer cancel()
	if podman, err := isPodman(ctx, engine); err != nil {
		return err
	} else if podman {
		profile = m.profile()
	}
	made, err := engine.ContainerCreate(ctx, m.driver.o.options(m.Plan, m.dir, profile, engineRlimits()))
	m.Container = made.ID
	return err
}

// engineRlimits are limits of which Podman has its own, more than its runtime may set on some
// hosts: without CAP_SYS_RESOURCE nobody raises a hard limit, and Podman lowers its own for
// processes to the kernel's highest process number. Open files are the agent's to limit
// further, processes the control group's.
func engineRlimits() []container.Rlimit {
	most := func(resource int, wanted uint64) int64 {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) == nil {
			wanted = min(wanted, l.Max)
		}
		return int64(wanted) //nolint:gosec // small
	}
	processes := uint64(1 << 15) // the kernel's own default
	if text, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		if highest, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
			processes = highest
		}
	}
	return []container.Rlimit{{Name: "nofile", Value: most(unix.RLIMIT_NOFILE, 1<<16)}, {Name: "nproc", Value: most(unix.RLIMIT_NPROC, min(processes, 1<<20))}}
}

func (m *machine) start(ctx context.Context) error {
	engine, err := m.driver.engine()
	if err != nil {
		return err
	}
	ctx, cancel := asked(ctx)
	defer cancel()
	if _, err := engine.ContainerStart(ctx, m.Container, client.ContainerStartOptions{}); err != nil {
		return err
	}
	found, err := engine.ContainerInspect(ctx, m.Container, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	if found.Container.State == nil || found.Container.State.Pid == 0 {
		return errors.New("its first process ended at once")
	}
	m.Agent = named(found.Container.State.Pid)
	return nil
}

// find finds the container's first process on this host, as the engine numbers it, and
// the control group that the engine has made for it.
func (m *machine) find() error {
	group, err := cgroup.Of(m.Agent.PID, m.Plan.ID)
	if err != nil {
		return fmt.Errorf("%w: is the engine on this host, outside any container?", err)
	}
	for _, dir := range group.Dirs() {
		if !strings.Contains(dir, m.Container) {
			return fmt.Errorf("process %d is in %s, and not in a cgroup of the container's", m.Agent.PID, dir)
		}
	}
	m.meter.Group = group
	return m.watch()
}
