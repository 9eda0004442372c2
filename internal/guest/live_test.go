package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// agentPath is the agent that the live tests start.
var agentPath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pinfold-guest-")
	if err != nil {
		panic(err)
	}
	agentPath = filepath.Join(dir, "pinfold-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", agentPath, "pinfold/cmd/pinfold-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the agent: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// A mode is a way to run a real agent without a sandbox around it.
type mode struct {
	name   string
	pid1   bool // first process of a fresh pid namespace
	change bool // root that gives its identity up in every process
}

func modes() []mode {
	all := []mode{{name: "process"}, {name: "pid 1", pid1: true}}
	if os.Geteuid() == 0 { // only root can become another user
		all = append(all, mode{name: "pid 1 switching user", pid1: true, change: true})
	}
	return all
}

// eachMode runs a test with every kind of agent.
func eachMode(t *testing.T, f func(t *testing.T, l *live)) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) { f(t, startAgent(t, m)) })
	}
}

// live is a real agent and the directory it calls home.
type live struct {
	*guest.Guest
	mode
	home string
	pid  int // on the host
}

func socketPair(t testing.TB) (host net.Conn, agent *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "host")
	host, err = net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return host, os.NewFile(uintptr(fds[1]), "agent")
}

func startAgent(t testing.TB, m mode) *live {
	t.Helper()
	checkGoroutines(t)
	home, err := os.MkdirTemp("", "pinfold-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	hello := wire.Hello{UID: os.Getuid(), GID: os.Getgid(), Home: home, SwitchUser: m.change}
	if m.change {
		hello.UID, hello.GID = sandbox.UID, sandbox.GID
	}
	if err := errors.Join(os.Chown(home, hello.UID, hello.GID), os.Chmod(home, 0o755)); err != nil {
		t.Fatal(err)
	}
	conn, theirs := socketPair(t)
	cmd := exec.Command(agentPath)
	cmd.Env = []string{"GOMAXPROCS=1", "GODEBUG=memprofilerate=0"} // as a driver does
	cmd.ExtraFiles, cmd.Stderr, cmd.SysProcAttr = []*os.File{theirs}, os.Stderr, &syscall.SysProcAttr{}
	if m.pid1 {
		cmd.SysProcAttr = pidNamespace()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() { // after the guest's Close, which must end the agent
		late := time.AfterFunc(time.Minute, func() { t.Error("the agent outlives its connection"); _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("the agent ended with %v", err)
		}
		late.Stop()
	})
	g, err := guest.New(t.Context(), conn, hello)
	if err != nil {
		_ = cmd.Process.Kill()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return &live{Guest: g, mode: m, home: home, pid: cmd.Process.Pid}
}

func pidNamespace() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// checkGoroutines fails the test if it leaves goroutines behind.
func checkGoroutines(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 200 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		buf := make([]byte, 64<<10)
		t.Errorf("goroutines: %d before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

// deadline bounds a test step.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// env is a plain environment.
var env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}

type ran struct {
	Stdout, Stderr string
	Code           int
	Signal         syscall.Signal
	Held           bool
}

// sh runs a shell command to its end.
func (l *live) sh(t testing.TB, script, stdin string) ran {
	t.Helper()
	var out, errOut bytes.Buffer
	s := guest.Streams{Stdout: &out, Stderr: &errOut}
	if stdin != "" {
		s.Stdin = strings.NewReader(stdin)
	}
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"sh", "-c", script}, Env: env}, s)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	exit, err := p.Wait(deadline(t))
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return ran{out.String(), errOut.String(), exit.Code, exit.Signal, p.PipesHeld()}
}

// code returns the code of a *sandbox.Error.
func code(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return e.Code
}
