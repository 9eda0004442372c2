package docker

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// An engine that is killed takes no machine with it that we do not notice: the machine goes
// on or is dead, the report says that nobody answers, and Destroy says what is left. When
// the engine is back, nothing is left.
func TestEngineDies(t *testing.T) {
	where := engineForTests(t)
	d := open(t, where, stateDir(t))
	plan := planFor(t, d, "survivor")
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	theDaemon.d.Stop(syscall.SIGKILL)
	if r, err := d.Probe(t.Context(), imagetest.Host(t)); err != nil || r.Blocked == nil || r.Blocked.Hint == "" {
		t.Errorf("the engine is gone, and the report is %+v, %v", r, err)
	}
	if out := run(t, m, plan, "/bin/echo", "on"); out != "on\n" {
		t.Errorf("without its engine the machine says %q", out)
	}
	if err := m.Destroy(t.Context()); err == nil || sandbox.AsError(err).Code != sandbox.CodeSetupFailed {
		t.Errorf("Destroy without an engine: %v", err)
	}
	if _, err := d.Create(t.Context(), renamed(plan, "another")); err == nil || sandbox.AsError(err).Hint == "" {
		t.Errorf("Create without an engine: %v", err)
	}
	if err := theDaemon.d.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-m.Dead():
	default:
		t.Error("it lives")
	}
	if _, err := os.Stat(filepath.Join(d.o.StateDir, "another")); err != nil { // the control
		t.Errorf("what was half made is not there: %v", err)
	}
	next, err := d.Create(t.Context(), renamed(plan, "next"))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := d.entries(); err != nil || len(left) != 1 || !strings.HasPrefix(left[0].Name(), agentPrefix) {
		t.Errorf("%v is left, %v", left, err)
	}
	if names := containers(t, where); len(names) > 0 {
		t.Errorf("%q are left", names)
	}
}

func renamed(p driver.Plan, id string) driver.Plan {
	p.ID = id
	return p
}

// With an engine that does not see our mounts no machine is made.
func TestUnseenMounts(t *testing.T) {
	where, state := engineForTests(t), stateDir(t)
	if err := unix.Mount(state, state, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) })
	if err := unix.Mount("", state, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	d := open(t, where, state)
	_, err := d.Create(t.Context(), planFor(t, d, "unseen"))
	if err == nil || !strings.Contains(err.Error(), "create the container") {
		t.Errorf("Create: %v", err)
	}
	if names := containers(t, where); len(names) > 0 {
		t.Errorf("%q are left", names)
	}
}

// What the engine made is looked at before anybody gets it, and refused when it is not what
// the plan says.
func TestVerify(t *testing.T) {
	where := engineForTests(t)
	d := open(t, where, stateDir(t))
	made, err := d.Create(t.Context(), planFor(t, d, "verified"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	m := made.(*machine)
	if err := m.verify(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(m *machine){
		"Uid":                          func(m *machine) { m.Plan.User.UID = 1001 },
		"memory limit":                 func(m *machine) { m.Plan.Limits.MemoryBytes-- },
		"mnt namespace":                func(m *machine) { m.Agent.PID = os.Getpid() },
		"/home/user can be written to": func(m *machine) { m.Plan.User.Home = "/elsewhere" },
		"machine's disk": func(m *machine) {
			m.dir = t.TempDir()
			if err := os.Mkdir(m.disk(), 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		other := d.machine("verified")
		other.Plan, other.Agent = m.Plan, m.Agent
		other.meter.Group = m.meter.Group
		change(other)
		check := other.verify
		if what == "mnt namespace" { // this process is in none of its own, and root's besides
			check = other.verifyNamespaces
		}
		if err := check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

// Nothing asks an engine before somebody wants a report or a machine.
func TestAsksNobody(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var asked atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = conn.Close()
		}
	}()
	d := New(Options{Engine: "unix://" + l.Addr().String(), Image: "x", StateDir: filepath.Join(dir, "none")})
	if ids, err := d.List(t.Context()); len(ids) > 0 || err != nil {
		t.Error(ids, err)
	}
	if left, err := d.Leftovers(t.Context()); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the engine was asked %d times", n)
	}
	if os.Geteuid() == 0 { // the control
		if r, err := d.Probe(t.Context(), imagetest.Host(t)); err != nil || r.Blocked == nil || asked.Load() == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// An engine that takes connections and answers nothing holds nobody up.
func TestMuteEngine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user asks no engine")
	}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "sock")) // whose connections nobody takes
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := New(Options{Engine: "unix://" + l.Addr().String(), Image: "x", StateDir: "/run/none"})
	d.timeout = 50 * time.Millisecond
	if r, err := d.Probe(t.Context(), imagetest.Host(t)); err != nil || r.Blocked == nil || r.Blocked.Hint == "" {
		t.Errorf("%+v, %v", r, err)
	}
	d.o.StateDir = t.TempDir()
	if left, err := d.Leftovers(t.Context()); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// What the guest does to the agent's file reaches nobody: it can be executed and nothing
// else.
func TestAgentsFile(t *testing.T) {
	where := engineForTests(t)
	d := open(t, where, stateDir(t))
	plan := planFor(t, d, "agentfile")
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for _, try := range []string{"cat /.pinfold/agent", "ls /.pinfold", "echo x >/.pinfold/agent", "cat /proc/1/environ", "ls /proc/1/fd", "ls -l /.pinfold/host"} {
		said := run(t, m, plan, "/bin/sh", "-c", "("+try+") >/dev/null 2>&1 && echo could || echo refused")
		if said != "refused\n" {
			t.Errorf("%s: %q", try, said)
		}
	}
	if said := run(t, m, plan, "/bin/sh", "-c", "cat /etc/passwd >/dev/null && echo could"); said != "could\n" { // the control
		t.Errorf("the control says %q", said)
	}
}
