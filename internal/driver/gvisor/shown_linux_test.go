package gvisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// machineOf is a machine with a connection to its agent.
type machineOf struct {
	*machine
	*guest.Guest
}

func planFor(t *testing.T, d *Driver, id string, l sandbox.Limits) driver.Plan {
	t.Helper()
	return planOf(t, d, imagetest.Host(t), id, l)
}

func planOf(t *testing.T, d *Driver, of image.Template, id string, l sandbox.Limits) driver.Plan {
	t.Helper()
	r, err := d.Probe(t.Context(), of)
	if err != nil || r.Blocked != nil {
		t.Fatalf("%v, %+v", err, r.Blocked)
	}
	p, err := driver.MakePlan(sandbox.Spec{Code: "x", Limits: l}.WithDefaults().Machine(), of, r, id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func create(t *testing.T, d *Driver, id string, l sandbox.Limits) machineOf {
	t.Helper()
	return createOf(t, d, planFor(t, d, id, l))
}

func createOf(t *testing.T, d *Driver, plan driver.Plan) machineOf {
	t.Helper()
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := guest.New(t.Context(), conn, wire.Hello{UID: plan.User.UID, GID: plan.User.GID, SwitchUser: plan.SwitchUser, Home: plan.User.Home})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return machineOf{m.(*machine), g}
}

// run runs a command to its end and returns what it prints.
func (m machineOf) run(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	p, err := m.Start(t.Context(), guest.Command{Args: args, Env: []string{"PATH=/usr/bin:/bin"}}, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		select {
		case <-m.Dead():
			t.Fatalf("%v: %+v", err, m.Death())
		case <-time.After(5 * time.Second):
			t.Fatalf("%v, and the machine lives", err)
		}
	}
	return out.String()
}

// What there is inside is the template's and the sentry's, and nothing of the host's beside.
func TestShown(t *testing.T) {
	m := create(t, opened(t, runscForTests(t)), "shown", sandbox.Limits{CPUs: 1})
	for command, want := range map[string]string{
		"ls -A /":          "bin dev etc home lib lib64 proc run sbin sys tmp usr var",
		"ls -A /home /var": "/home: user /var: tmp",
		"ls -A /run /tmp":  "/run: /tmp:",
		"ls -A /etc/ssl":   "certs openssl.cnf",
		"cat /proc/modules /proc/sys/kernel/keys/* 2>/dev/null":       "200",
		"cut -d' ' -f1 /proc/uptime | cut -d. -f1 | grep -cx '[0-9]'": "1", // seconds: the clocks are its own
		"cat /dev/fuse 2>&1 | grep -c 'Permission denied'":            "1",
		"cat /dev/net/tun 2>&1 | grep -c 'Permission denied'":         "1",
		"id -u; id -G":      "1000 1000",
		"cat /etc/hostname": "sandbox",
	} {
		got := strings.Join(strings.Fields(m.run(t, "/bin/sh", "-c", command)), " ")
		if command == "ls -A /" { // what a host without a merged /usr has, too
			got = strings.ReplaceAll(got, " lib32", "")
			got = strings.ReplaceAll(got, " libx32", "")
		}
		if got != want {
			t.Errorf("%s: %q, not %q", command, got, want)
		}
	}
}

// A host's socket cannot be connected to from inside, wherever it is seen, and none of the
// sandbox's own is one of the host's.
func TestSocketsOfTheHost(t *testing.T) {
	m := create(t, opened(t, runscForTests(t)), "sockets", sandbox.Limits{})
	l := listenAs(t, m.block.Base+sandbox.UID, m.disk, "tmp/host")
	defer l.Close()
	const script = `
import socket, sys
def try_(what, f):
    try: f(); print(what, "ok")
    except OSError as e: print(what, e.errno)
try_("connect", lambda: socket.socket(socket.AF_UNIX).connect("/tmp/host"))
s = socket.socket(socket.AF_UNIX)
try_("bind", lambda: s.bind("/tmp/guest"))
try_("listen", lambda: s.listen())
try_("itself", lambda: socket.socket(socket.AF_UNIX).connect("/tmp/guest"))
sys.stdout.flush(); sys.stdin.read()
`
	out := m.run(t, "/usr/bin/python3", "-c", script)
	if !strings.Contains(out, "connect 111") || strings.Contains(out, "connect ok") {
		t.Errorf("inside: %q", out)
	}
	at := fmt.Sprintf("/proc/self/fd/%d/tmp/", m.disk.Fd())
	if conn, err := net.Dial("unix", at+"host"); err != nil { // the control
		t.Errorf("the host's socket cannot be connected to from outside either: %v", err)
	} else {
		_ = conn.Close()
	}
	if info, err := os.Lstat(at + "guest"); err == nil && info.Mode()&os.ModeSocket != 0 {
		t.Error("the sandbox made a socket of the host's")
	}
}

// listenAs listens at a name in a directory, as a user of the host's.
func listenAs(t *testing.T, uid int, dir *os.File, name string) net.Listener {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// The thread must not end: machines that were made on it would end with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(id int) {
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(id), 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(id), 0, 0)
	}
	err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())))
	become(uid)
	l, listenErr := net.Listen("unix", name)
	err = errors.Join(err, listenErr, unix.Chmod(name, 0o777))
	become(0)
	if err = errors.Join(err, unix.Chdir(here)); err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the name is another directory's
	return l
}
