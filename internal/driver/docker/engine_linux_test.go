package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"pinfold/internal/driver/drivertest"
)

// daemon is an engine of the tests' own, with its own directories. It has a mount
// namespace of its own, as where systemd starts it, and sees what we mount.
type daemon struct {
	program  string // "dockerd" or "podman"
	dir      string
	machines string // below which it sees what we mount, whatever the rest of this host's mounts are
	cmd      *exec.Cmd
	log      bytes.Buffer
}

// testEngine is started by the first test that needs it, and ended by TestMain.
type testEngine struct {
	program, debian string // its name, and the package that it comes from
	once            sync.Once
	d               *daemon
	err             error
}

var (
	theDaemon = testEngine{program: "dockerd", debian: "docker.io"}
	thePodman = testEngine{program: "podman", debian: "podman"}
)

func TestMain(m *testing.M) {
	if runHelper() {
		os.Exit(0)
	}
	code := m.Run()
	for _, e := range []*testEngine{&theDaemon, &thePodman} {
		if d := e.d; d != nil {
			d.stop(syscall.SIGTERM)
			d.endOrphans()
			d.removeGroups()
			_ = unix.Unmount(d.machines, unix.MNT_DETACH)
			_, _ = os.RemoveAll(d.dir), os.Remove(d.machines)
		}
	}
	os.Exit(code)
}

// startTimeout bounds the start of an engine, which takes some seconds.
const startTimeout = 2 * time.Minute

// engineForTests returns the tests' own Docker engine.
func engineForTests(t *testing.T) string {
	t.Helper()
	return theDaemon.address(t)
}

// address returns where the engine listens that has testImage, or ends the test.
func (e *testEngine) address(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "the docker driver needs root: run the tests as root")
	}
	if _, err := exec.LookPath(e.program); err != nil {
		drivertest.Missing(t, "there is no %s: apt-get install %s", e.program, e.debian)
	}
	e.once.Do(func() {
		e.d, e.err = startDaemon(e.program)
		if e.err == nil {
			e.err = e.d.importImage(packImage(t))
		}
	})
	if e.err != nil {
		t.Fatal(e.err)
	}
	return e.d.address()
}

// group is the control group, in each hierarchy, in which its containers' are.
func (d *daemon) group() string { return "/" + filepath.Base(d.machines) }

func (d *daemon) removeGroups() {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, _ := filepath.Glob(pattern + d.group())
		for _, g := range groups {
			_ = os.Remove(g)
		}
	}
}

func (d *daemon) address() string { return "unix://" + filepath.Join(d.dir, "sock") }

func startDaemon(program string) (*daemon, error) {
	// Not on a tmpfs or an overlay, on which an overlay cannot lie; and a short name.
	dir, err := os.MkdirTemp("/var/tmp", "engine-")
	if err != nil {
		return nil, err
	}
	d := &daemon{program: program, dir: dir}
	if d.machines, err = os.MkdirTemp("/run", "docker-test-"); err != nil {
		return d, err
	}
	if err := errors.Join(unix.Mount(d.machines, d.machines, "", unix.MS_BIND, ""), unix.Mount("", d.machines, "", unix.MS_SHARED, "")); err != nil {
		return d, err
	}
	return d, d.start()
}

// start starts the daemon. Of one that was killed it removes the name of its containerd,
// which the kernel has ended with it: where nobody waits for orphans, that one's process id
// stays taken, and a new daemon would wait for it.
func (d *daemon) start() error {
	if err := os.Remove(filepath.Join(d.dir, "exec/containerd/containerd.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	args := []string{
		"dockerd", "--host=" + d.address(),
		"--data-root=" + filepath.Join(d.dir, "data"), "--exec-root=" + filepath.Join(d.dir, "exec"), "--pidfile=" + filepath.Join(d.dir, "pid"),
		"--cgroup-parent=" + d.group(), "--storage-driver=overlay2", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
	}
	if d.program == "podman" {
		args = []string{
			"podman", "--root=" + filepath.Join(d.dir, "data"), "--runroot=" + filepath.Join(d.dir, "exec"), "--tmpdir=" + filepath.Join(d.dir, "exec/tmp"),
			"--cgroup-manager=cgroupfs", "--runtime=runc", // for crun ends where the second hierarchy has a controller, too
			"--storage-driver=overlay", "--events-backend=file", "system", "service", "--time=0", d.address(),
		}
	}
	d.cmd = exec.Command("/bin/sh", append([]string{"-c", `mount --make-rslave / && exec "$0" "$@"`}, args...)...)
	d.cmd.Dir = d.dir // in which Podman's helper writes when memory runs out
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.dir)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	c, err := client.New(client.WithHost(d.address()))
	if err != nil {
		return err
	}
	defer c.Close()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(50 * time.Millisecond) {
		_, err := c.Ping(context.Background(), client.PingOptions{})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			d.stop(syscall.SIGKILL)
			return fmt.Errorf(d.program+" does not start: %w: %s", err, d.log.Bytes())
		}
	}
}

// stop ends the daemon.
func (d *daemon) stop(signal syscall.Signal) {
	_ = d.cmd.Process.Signal(signal)
	_ = d.cmd.Wait()
}

// endOrphans ends what containers are left, with what watches them: after a test that has
// failed with its engine killed.
func (d *daemon) endOrphans() {
	programs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range programs {
		argv, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(argv, []byte(d.dir+"/exec/")) {
			continue
		}
		pid := filepath.Base(filepath.Dir(name))
		children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		for _, p := range append(strings.Fields(string(children)), pid) {
			if n, err := strconv.Atoi(p); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	}
}

func (d *daemon) importImage(image []byte) error {
	c, err := client.New(client.WithHost(d.address()))
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := c.ImageImport(context.Background(), client.ImageImportSource{Source: bytes.NewReader(image), SourceName: "-"}, testImage, client.ImageImportOptions{})
	if err != nil {
		return err
	}
	var said bytes.Buffer
	_, err = said.ReadFrom(made)
	if err = errors.Join(err, made.Close()); err == nil && !bytes.Contains(said.Bytes(), []byte("sha256:")) {
		err = fmt.Errorf("import: %s", said.Bytes())
	}
	return err
}
