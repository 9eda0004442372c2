//go:build linux

package process

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/proctree"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// tries is a program that tries what a plain process can do to others of its user: each
// with its outcome, "ok" or the error.
//
//go:embed testdata/tries.py
var tries []byte

// box is a machine with its agent.
type box struct {
	*guest.Guest
	*machine
	t *testing.T
}

// newBox makes a machine with the tries in its home.
func newBox(t *testing.T, d *Driver, l sandbox.Limits) *box {
	t.Helper()
	report, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{Code: "x", Driver: Name, Limits: l}.WithDefaults()
	plan, err := driver.MakePlan(spec.Machine(), imagetest.Host(t), report, fmt.Sprintf("attack-%d", time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	made, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{machine: made.(*machine), t: t}
	t.Cleanup(func() {
		if err := made.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	conn, err := made.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := plan.User
	if b.Guest, err = guest.New(t.Context(), conn, wire.Hello{UID: u.UID, GID: u.GID, Home: u.Home}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.WriteFile(t.Context(), "tries.py", 0o644, int64(len(tries)), bytes.NewReader(tries)); err != nil {
		t.Fatal(err)
	}
	return b
}

// run runs a command to its end and returns what it printed.
func (b *box) run(args ...string) string {
	b.t.Helper()
	var out bytes.Buffer
	p, err := b.Start(b.t.Context(), guest.Command{Args: args, Env: []string{"PATH=/usr/bin:/bin"}}, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		b.t.Fatalf("start %q: %v", args, err)
	}
	if _, err := p.Wait(b.t.Context()); err != nil {
		b.t.Fatalf("wait for %q: %v", args, err)
	}
	return out.String()
}

// victim is what the host has that an attack goes for: a process, a file, sockets, shared
// memory. All belong to a user whom a plain process of the same user could harm.
type victim struct {
	t    *testing.T
	uid  int
	args []string // for the tries
}

// newVictim makes them in dir. As root they are another user's than root, since what is
// root's an ordinary process does not reach anyway.
func newVictim(t *testing.T, dir string) *victim {
	t.Helper()
	v := &victim{t: t, uid: os.Geteuid()}
	if v.uid == 0 {
		v.uid = asuser.ID
	}
	dir = filepath.Join(dir, "victim")
	if err := os.Mkdir(dir, 0o777); err != nil { //nolint:gosec // open to attacks
		t.Fatal(err)
	}
	for _, name := range []string{"", "secret", "moved"} {
		path := filepath.Join(dir, name)
		if name != "" {
			if err := os.WriteFile(path, []byte("secret"), 0o666); err != nil { //nolint:gosec // likewise
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // likewise
			t.Fatal(err)
		}
		if err := os.Chown(path, v.uid, v.uid); err != nil {
			t.Fatal(err)
		}
	}
	abstract := fmt.Sprintf("pinfold-victim-%d-%d", os.Getpid(), time.Now().UnixNano())
	for _, address := range []string{"@" + abstract, filepath.Join(dir, "socket")} {
		l, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	if err := os.Chmod(filepath.Join(dir, "socket"), 0o777); err != nil { //nolint:gosec // likewise
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	key := int(time.Now().UnixNano() & 0x7fffffff)
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	v.args = []string{dir, abstract, strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port), strconv.Itoa(key)}
	return v
}

// asVictim is a command of the victim's user.
func (v *victim) asVictim(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(v.t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(v.uid), Gid: uint32(v.uid), Groups: []uint32{}} //nolint:gosec // an id
	}
	return cmd
}

// process starts a process of the victim's.
func (v *victim) process() *exec.Cmd {
	v.t.Helper()
	cmd := v.asVictim("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// outcomes reads what the tries printed.
func outcomes(t *testing.T, out string) map[string]string {
	t.Helper()
	var found map[string]string
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return found
}

// levels are those of Landlock that this user's machines can be made with here: the
// kernel's, and as root one that keeps no signals and no sockets inside.
func levels() []int {
	if os.Geteuid() == 0 {
		return []int{0, landlock.ScopeLevel - 1}
	}
	return []int{0}
}

// TestAttacks has a program try everything that a plain process of the victim's user can
// do, which the control shows by doing it, from inside of a sandbox, where nothing may
// succeed.
func TestAttacks(t *testing.T) {
	for _, level := range levels() {
		t.Run(fmt.Sprintf("level %d", level), func(t *testing.T) {
			ledger.Check(t)
			dir := place(t)
			b := newBox(t, newDriver(t, dir, level), sandbox.Limits{})
			v := newVictim(t, dir)
			pid := strconv.Itoa(v.process().Process.Pid)
			args := append([]string{pid}, v.args...)
			inside := outcomes(t, b.run(append([]string{"/usr/bin/python3", "tries.py"}, args...)...))
			for try, how := range inside {
				if how == "ok" {
					t.Errorf("inside: %s succeeded", try)
				}
			}
			script := filepath.Join(dir, "victim", "tries.py")         // the control
			if err := os.WriteFile(script, tries, 0o644); err != nil { //nolint:gosec // to be read
				t.Fatal(err)
			}
			out, err := v.asVictim(append([]string{"/usr/bin/python3", script}, args...)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			outside := outcomes(t, string(out))
			for try, how := range outside {
				if how != "ok" {
					t.Errorf("outside, where nothing stops it: %s: %s", try, how)
				}
			}
			if len(inside) != len(outside) || len(inside) < 20 {
				t.Errorf("%d tries inside, %d outside", len(inside), len(outside))
			}
		})
	}
}

func TestAttacksAsUser(t *testing.T) {
	asuser.Rerun(t, "TestAttacks", []string{agenttest.Agent}, nil)
}

// TestSupervisorStays has a program send every signal at its supervisor, which lives on and
// ends all that has run away into sessions of its own. Without one that goes on living:
// the control.
func TestSupervisorStays(t *testing.T) {
	runAway := "for i in 1 2 3; do (setsid " + ownSleep + " >/dev/null 2>&1 &) ; done; echo done"
	for _, level := range levels() {
		t.Run(fmt.Sprintf("level %d", level), func(t *testing.T) {
			ledger.Check(t)
			b := newBox(t, newDriver(t, place(t), level), sandbox.Limits{})
			supervisor := b.child.PID
			out := b.run("/bin/bash", "-c", fmt.Sprintf("for s in {1..64}; do kill -$s %d && echo sent $s; done 2>/dev/null; %s", supervisor, runAway))
			if out != "done\n" {
				t.Errorf("the program says %q", out)
			}
			ran := proctree.Below(supervisor)
			if len(ran) < 4 { // the agent and three
				t.Errorf("below the supervisor are %v", ran)
			}
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			for _, p := range ran {
				if p.Lives() {
					t.Errorf("%v lives on", p)
				}
			}
			if d := b.Death(); d.Kind != driver.DeathDestroyed {
				t.Errorf("%+v", d)
			}
		})
	}
	v := &victim{t: t, uid: os.Geteuid()}
	before := sleepers()
	if out, err := v.asVictim("/bin/bash", "-c", runAway).Output(); err != nil || string(out) != "done\n" {
		t.Fatalf("%q, %v", out, err)
	}
	var left []int
	for until := time.Now().Add(time.Minute); len(left) < 3 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		left = slices.DeleteFunc(sleepers(), func(pid int) bool { return slices.Contains(before, pid) })
	}
	if len(left) < 3 {
		t.Errorf("without a supervisor %v are left", left)
	}
	for _, pid := range left {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func TestSupervisorStaysAsUser(t *testing.T) {
	asuser.Rerun(t, "TestSupervisorStays", []string{agenttest.Agent}, nil)
}

// ownSleep is what no other process of this user sleeps for, in seconds.
var ownSleep = fmt.Sprintf("sleep %d", 1_000_000+os.Getpid())

// sleepers are the processes of this test that sleep.
func sleepers() (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range found {
		text, _ := os.ReadFile(name)
		info, err := os.Stat(name)
		if err == nil && string(text) == strings.ReplaceAll(ownSleep, " ", "\x00")+"\x00" && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestEndWithoutSupervisor kills the supervisor from outside: all that it watched over ends
// with it, or is ended by the host.
func TestEndWithoutSupervisor(t *testing.T) {
	ledger.Check(t)
	b := newBox(t, newDriver(t, place(t), 0), sandbox.Limits{})
	b.run("/bin/sh", "-c", "(setsid sleep 1000 >/dev/null 2>&1 &)")
	if _, err := b.Usage(t.Context()); err != nil { // as the engine does all the time
		t.Fatal(err)
	}
	ran := proctree.Below(b.child.PID)
	if len(ran) < 2 {
		t.Errorf("below the supervisor are %v", ran)
	}
	if err := b.child.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.Dead()
	if d := b.Death(); d.Kind != driver.DeathAgent {
		t.Errorf("%+v", d)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	for _, p := range ran {
		if p.Lives() {
			t.Errorf("%v lives on", p)
		}
	}
}

func TestEndWithoutSupervisorAsUser(t *testing.T) {
	asuser.Rerun(t, "TestEndWithoutSupervisor", []string{agenttest.Agent}, nil)
}
