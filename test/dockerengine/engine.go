//go:build linux

// Package dockerengine gives tests a Docker engine of their own, or Podman's: started as
// root, with its own directories and control group, without a network, and ended with all
// that it holds. It speaks the few calls that this takes by itself: the engine's own client
// is the docker driver's alone.
package dockerengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Programs that are engines.
const (
	Docker = "dockerd"
	Podman = "podman"
)

var packages = map[string]string{Docker: "docker.io", Podman: "podman"}

// Engine is one that runs. It has a mount namespace of its own, as where systemd starts it,
// and sees what is mounted below Machines. Its methods are not safe for concurrent use.
type Engine struct {
	Dir      string // its files
	Machines string // below which it sees what we mount, whatever the rest of this host's mounts are

	program string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

// Missing says what must be there for an engine to start, or is "".
func Missing(program string) string {
	if os.Geteuid() != 0 {
		return "an engine of the tests' own needs root: run the tests as root"
	}
	if _, err := exec.LookPath(program); err != nil {
		return "there is no " + program + ": apt-get install " + packages[program]
	}
	return ""
}

// New starts an engine. Close ends it, also after an error, if it is not nil.
func New(program string) (*Engine, error) {
	// Not on a tmpfs or an overlay, on which an overlay cannot lie; and a short name.
	dir, err := os.MkdirTemp("/var/tmp", "engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{program: program, Dir: dir}
	if e.Machines, err = os.MkdirTemp("/run", "docker-test-"); err != nil {
		return e, err
	}
	if err := errors.Join(unix.Mount(e.Machines, e.Machines, "", unix.MS_BIND, ""), unix.Mount("", e.Machines, "", unix.MS_SHARED, "")); err != nil {
		return e, err
	}
	return e, e.Start()
}

// Address is where it listens.
func (e *Engine) Address() string { return "unix://" + e.socket() }

func (e *Engine) socket() string { return filepath.Join(e.Dir, "sock") }

// StateDir is a new directory whose mounts the engine sees, and a short one.
func (e *Engine) StateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(e.Machines, "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startTimeout bounds the start of an engine, which takes some seconds.
const startTimeout = 2 * time.Minute

// Start starts one that has stopped. Of one that was killed it removes the name of its
// containerd, which the kernel has ended with it: where nobody waits for orphans, that one's
// process id stays taken, and a new daemon would wait for it.
func (e *Engine) Start() error {
	if err := os.Remove(filepath.Join(e.Dir, "exec/containerd/containerd.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e.cmd = exec.Command("/bin/sh", append([]string{"-c", `mount --make-rslave / && exec "$0" "$@"`}, e.args()...)...)
	e.cmd.Dir = e.Dir // in which Podman's helper writes when memory runs out
	e.cmd.Env = append(os.Environ(), "TMPDIR="+e.Dir)
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(50 * time.Millisecond) {
		_, err := e.call(context.Background(), http.MethodGet, "/_ping", nil)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			e.Stop(syscall.SIGKILL)
			return fmt.Errorf(e.program+" does not start: %w: %s", err, e.log.Bytes())
		}
	}
}

func (e *Engine) args() []string {
	data, run := filepath.Join(e.Dir, "data"), filepath.Join(e.Dir, "exec")
	if e.program == Podman {
		return []string{
			Podman, "--root=" + data, "--runroot=" + run, "--tmpdir=" + run + "/tmp",
			"--cgroup-manager=cgroupfs", "--runtime=runc", // for crun ends where the second hierarchy has a controller, too
			"--storage-driver=overlay", "--events-backend=file", "system", "service", "--time=0", e.Address(),
		}
	}
	return []string{
		Docker, "--host=" + e.Address(), "--data-root=" + data, "--exec-root=" + run, "--pidfile=" + filepath.Join(e.Dir, "pid"),
		"--cgroup-parent=" + e.group(), "--storage-driver=overlay2", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
	}
}

// Stop ends the engine, and not what it holds.
func (e *Engine) Stop(signal syscall.Signal) {
	if e.cmd == nil || e.cmd.Process == nil {
		return
	}
	_ = e.cmd.Process.Signal(signal)
	_ = e.cmd.Wait()
}

// Close ends the engine and removes all that it had.
func (e *Engine) Close() {
	e.Stop(syscall.SIGTERM)
	e.endOrphans()
	e.removeGroups()
	_ = unix.Unmount(e.Machines, unix.MNT_DETACH)
	_, _ = os.RemoveAll(e.Dir), os.Remove(e.Machines)
}

// group is the control group, in each hierarchy, in which its containers' are.
func (e *Engine) group() string { return "/" + filepath.Base(e.Machines) }

func (e *Engine) removeGroups() {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, _ := filepath.Glob(pattern + e.group())
		for _, g := range groups {
			_ = os.Remove(g)
		}
	}
}

// endOrphans ends what containers are left, with what watches them: after a test that has
// failed with its engine killed.
func (e *Engine) endOrphans() {
	programs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range programs {
		argv, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(argv, []byte(e.Dir+"/exec/")) {
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

// Import makes an image of a root file system's archive.
func (e *Engine) Import(ctx context.Context, name string, archive io.Reader) error {
	said, err := e.call(ctx, http.MethodPost, "/images/create?fromSrc=-&repo="+url.QueryEscape(name), archive)
	if err == nil && !bytes.Contains(said, []byte("sha256:")) {
		err = fmt.Errorf("import: %s", said)
	}
	return err
}

// call calls the engine's API, and returns the beginning of what it says.
func (e *Engine) call(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.socket())
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return nil, err
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, said)
	}
	return said, err
}
