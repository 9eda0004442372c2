//go:build linux

package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// newPythonZygote starts a zygote with modules loaded. Without root there is
// none, which is a result too.
func newPythonZygote(t testing.TB, d *Driver, modules ...string) (driver.Zygote, driver.Plan, error) {
	t.Helper()
	plan, spec := zygoteSpec(t, d, modules...)
	p, err := startZygote(t, t.Context(), d, plan, spec)
	return p, plan, err
}

// zygoteSpec describes a zygote with modules loaded.
func zygoteSpec(t testing.TB, d *Driver, modules ...string) (driver.Plan, zygote.Spec) {
	t.Helper()
	report, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	if report.Blocked != nil {
		drivertest.Missing(t.(*testing.T), "the driver is blocked here: %v (%s)", report.Blocked, report.Blocked.Hint)
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), imagetest.Host(t), report, fmt.Sprintf("zygote-%d", forkCount.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	return plan, pythonSpec(t, plan.Template, modules...)
}

// pythonSpec describes a zygote of Python with modules loaded.
func pythonSpec(t testing.TB, template image.Template, modules ...string) zygote.Spec {
	t.Helper()
	python, err := language.Find("python")
	if err != nil {
		t.Fatal(err)
	}
	step, _, err := python.ZygoteStep(modules, sandbox.DefaultLimits(), func(names []string) (string, bool) { return template.Lookup(os.DirFS("/"), names) })
	if err != nil {
		t.Fatal(err)
	}
	setup, err := json.Marshal(map[string]any{"modules": modules})
	if err != nil {
		t.Fatal(err)
	}
	spec := zygote.Spec{
		Args: step.Args, Env: step.Env, Setup: setup, Home: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID,
		Limits: []zygote.Rlimit{forkRlimit},
	}
	for _, f := range step.Files {
		spec.Files = append(spec.Files, zygote.GuestFile{Path: f.Path, Content: f.Content})
	}
	return spec
}

// zygotes are for the conformance suite.
var zygotes = &drivertest.Zygotes{
	Spec:  func(t *testing.T, shown image.Template) zygote.Spec { return pythonSpec(t, shown, "json") },
	Exit7: "print('seven')\nraise SystemExit(7)", Endless: "while True: pass",
}

// startZygote starts a zygote and has it destroyed at the test's end.
func startZygote(t testing.TB, ctx context.Context, d *Driver, plan driver.Plan, spec zygote.Spec) (driver.Zygote, error) { //nolint:revive // the test comes first
	t.Helper()
	p, err := d.NewZygote(ctx, plan, spec)
	if err == nil {
		t.Cleanup(func() {
			if err := p.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	return p, err
}

// forkRlimit is the limit of the forks of newPythonZygote.
var forkRlimit = zygote.Rlimit{Resource: unix.RLIMIT_NOFILE, Value: 1024}

// hand hands a fork its program.
func hand(t testing.TB, f *zygote.Child, code string) {
	t.Helper()
	job, err := json.Marshal(map[string]any{"file": "main.py", "code": code, "args": nil, "env": nil, "allowed_imports": nil, "results": false})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(f.Stdin, "%08x%s", len(job), job); err != nil {
		t.Fatal(err)
	}
}

// tell hands a fork its program and returns what it prints and how it ends.
func tell(t testing.TB, f *zygote.Child, code string) (stdout, stderr string, exit zygote.Exit) {
	t.Helper()
	hand(t, f, code)
	_ = f.Stdin.Close()
	defer f.Stdout.Close()
	defer f.Stderr.Close()
	out, err := io.ReadAll(f.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(f.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), string(said), <-f.Exited
}

// Forks run one program each, end as programs end, and leave nothing; nor does
// their zygote.
func TestFork(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	p, plan, err := newPythonZygote(t, d, "json")
	if !d.host.ids.root {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("a zygote without root: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		code, out string
		exit      zygote.Exit
	}{
		{"import json, os\nprint(json.dumps([os.getuid(), os.getcwd(), os.listdir('.')]))\nos._exit(7)", `[1000, "/home/user", ["main.py"]]` + "\n", zygote.Exit{Code: 7}},
		{"import os\nos.abort()", "", zygote.Exit{Signal: 6}},
		{"import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "", zygote.Exit{Signal: 15}},
		{"import os; print([fd for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd) and 'libffi' not in os.readlink('/proc/self/fd/' + fd)])", "['0', '1', '2']\n", zygote.Exit{}},
	} {
		plan.ID = fmt.Sprintf("fork-%d", i)
		m, f, err := p.Fork(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		out, said, exit := tell(t, f, test.code)
		exit.CPU = 0
		if out != test.out && !strings.Contains(test.code, "abort") || exit != test.exit {
			t.Errorf("%s: %+v, %q, %q", test.code, exit, out, said)
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForkAsUser(t *testing.T) {
	asuser.Rerun(t, "TestFork", []string{agenttest.Agent, drivertest.Probe}, nil)
}

// What a zygote cannot load, or cannot be forked with, is said, soon, and nothing
// of it is left.
func TestUnfitZygotes(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	for _, test := range []struct {
		name, module string // what it does when it is loaded
		why          string // "": it is no hindrance
		load         bool   // it could not be loaded, instead of not be forked
	}{
		{"missing", "import no_such_module", "no_such_module", true},
		{"raises", "raise ValueError('a\\x1b[2J\\n' + 5000 * 'x')", "ValueError: a", true},
		{"wants to exit", "raise SystemExit(3)", "SystemExit: 3", true},
		{"exits", "import os; os._exit(3)", "it ended", true},
		{"crashes", "import ctypes; ctypes.string_at(0)", "it ended", true},
		{"is no Python", "(", "SyntaxError", true},
		{"never ends", "while True: pass", "it took too long", true},
		{"waits", "import threading; threading.Event().wait()", "it took too long", true},
		{"stops", "import os; os.kill(0, 19); import time; time.sleep(60)", "it took too long", true},
		{"recurses", "def f(): f()\nf()", "RecursionError", true},
		{"thread", "import threading; threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()", "thread", false},
		{"thread below Python", "import _thread, time; _thread.start_new_thread(time.sleep, (60,)); time.sleep(.1)", "threads", false},
		{"file", "f = open('/etc/hostname')", "/etc/hostname", false},
		{"socket", "import socket; s = socket.socket()", "socket", false},
		{"its host again", "import os; f = os.dup(4)", "open", false},
		{"child", "import subprocess; p = subprocess.Popen(['/bin/sleep', '60'])", "process", false},
		{"child of a child", "import os\nif os.fork() == 0:\n  if os.fork() == 0:\n    os.execv('/bin/sleep', ['sleep', '60'])\n  os._exit(0)\nos.wait()", "process", false},
		{"shared memory", "import mmap; m = mmap.mmap(-1, 4096)", "share", false},
		{"shared value", "import multiprocessing.heap as h; a = h.Arena(4096)", "open", false},
		{"lower limits", "import resource; resource.setrlimit(7, (512, 512))", "limit", false},
		{"prints", "import sys, os; print('x' * 1000000); sys.stderr.write('y'); os.write(1, b'z'); os.write(2, b'z')", "", false},
		{"reads", "import sys; assert sys.stdin.read() == ''", "", false},
		{"signal handlers", "import signal; signal.signal(15, lambda *_: 0); signal.alarm(0)", "", false},
		{"its surroundings", "import os, resource; os.umask(0); os.chdir('/'); os.nice(1); resource.setrlimit(7, (512, 4096)); os.environ.clear()", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, spec := zygoteSpec(t, d, "bad")
			spec.Files = append(spec.Files, zygote.GuestFile{Path: filepath.Dir(spec.Files[0].Path) + "/bad.py", Content: []byte(test.module)})
			limit := time.Minute
			if test.why == "it took too long" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			p, err := startZygote(t, ctx, d, plan, spec)
			if errors.Is(err, errors.ErrUnsupported) {
				return // not root
			}
			if test.why == "" && !test.load {
				if err != nil {
					t.Fatal(err)
				}
				if out := runFork(t, p, plan, "import os, sys; print(os.getcwd(), oct(os.umask(0)), 'bad' in sys.modules)"); out != "/home/user 0o22 True\n" {
					t.Fatalf("a fork prints %q", out)
				}
				return
			}
			var unfit *zygote.UnfitError
			if !errors.As(err, &unfit) || unfit.Load != test.load || !strings.Contains(unfit.Why, test.why) || len(unfit.Why) > 1000 {
				t.Fatalf("%+v", err)
			}
		})
	}
	t.Run("takes all memory", func(t *testing.T) {
		plan, spec := zygoteSpec(t, d, "bad")
		spec.Files = append(spec.Files, zygote.GuestFile{Path: filepath.Dir(spec.Files[0].Path) + "/bad.py", Content: []byte("x = b'x' * (1 << 29)")})
		_, err := startZygote(t, t.Context(), d, plan, spec)
		if e := sandbox.AsError(err); !errors.Is(err, errors.ErrUnsupported) && (err == nil || e.Code != sandbox.CodeLimitInvalid || e.Field != "limits.memory_bytes" || e.Hint == "") {
			t.Fatalf("%+v", err)
		}
	})
	for _, program := range []string{"/bin/false", "/usr/bin/yes", "/no/such/python", "/etc/passwd", "/usr"} {
		t.Run("broken interpreter "+program, func(t *testing.T) {
			plan, spec := zygoteSpec(t, d)
			spec.Args[0] = program
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := startZygote(t, ctx, d, plan, spec); err == nil {
				t.Fatal("it became a zygote")
			}
		})
	}
}

// When a zygote ends, or cannot do its work, its forks' machines die, say why, and
// can be destroyed; a new zygote works.
func TestZygotesThatEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*testing.T, *zygoteMachine)
		slow bool // only a machine that is destroyed shows it
	}{
		{"killed", func(t *testing.T, p *zygoteMachine) { signalZygote(t, p, unix.SIGKILL) }, false},
		{"stopped", func(t *testing.T, p *zygoteMachine) { signalZygote(t, p, unix.SIGSTOP) }, false},
		{"stuck", stickZygote, true},
		{"not making sense", func(t *testing.T, p *zygoteMachine) {
			if err := newZygoteConn(p.machine.conn).Send([]byte("no packet")); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			agenttest.Bytes(t)
			ledger.Check(t, state)
			d := newDriver(t, state)
			made, plan, err := newPythonZygote(t, d)
			if errors.Is(err, errors.ErrUnsupported) {
				return // not root
			}
			if err != nil {
				t.Fatal(err)
			}
			p := made.(*zygoteMachine)
			plan.ID = "fork"
			m, f, err := p.Fork(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			defer closeFiles([]*os.File{f.Stdin, f.Stdout, f.Stderr})
			test.end(t, p)
			begin := time.Now()
			if !test.slow {
				<-m.Dead()
				if death := m.Death(); !strings.Contains(death.Evidence, "forked ended") {
					t.Errorf("the machine ended with %+v", death)
				}
				if _, _, err := p.Fork(t.Context(), plan); err == nil {
					t.Error("a dead zygote was forked")
				}
			}
			if err := m.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e, ok := <-f.Exited; ok {
				t.Errorf("somebody knows how the fork ended: %+v", e)
			}
			<-p.Dead()
			if took := time.Since(begin); took > destroyTimeout {
				t.Errorf("it took %v", took)
			}
			again, plan, err := newPythonZygote(t, d)
			if err != nil {
				t.Fatal(err)
			}
			if out := runFork(t, again, plan, "print(6 * 7)"); out != "42\n" {
				t.Errorf("a new zygote's fork prints %q", out)
			}
		})
	}
}

func signalZygote(t *testing.T, p *zygoteMachine, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(p.machine.child.PID, s); err != nil {
		t.Fatal(err)
	}
}

// stickZygote has the zygote wait for ever, for a fork that is to write to a full
// pipe first.
func stickZygote(t *testing.T, p *zygoteMachine) {
	t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(pipe[:]) })
	for b := make([]byte, pipeSize); ; {
		if _, err := unix.Write(pipe[1], b); err != nil {
			break
		}
	}
	if err := unix.SetNonblock(pipe[1], false); err != nil {
		t.Fatal(err)
	}
	fds := slices.Repeat([]int{p.machine.child.Pidfd}, 4) // never entered
	fds = append(fds, slices.Repeat(pipe[1:], p.machine.cgroup.Entries())...)
	if err := newZygoteConn(p.machine.conn).Send(zygote.Request(99), fds...); err != nil {
		t.Fatal(err)
	}
}

// pipeSize is what a pipe holds, as Linux makes them.
const pipeSize = 64 << 10

// runFork runs a program in a fork and returns what it prints, on both streams.
func runFork(t testing.TB, p driver.Zygote, plan driver.Plan, code string) string {
	t.Helper()
	plan.ID = fmt.Sprintf("fork-%d", forkCount.Add(1))
	m, f, err := p.Fork(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	out, said, _ := tell(t, f, code)
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out + said
}

// forkCount tells the forks of all tests apart.
var forkCount atomic.Int64

// A fork that nobody waits for any more leaves nothing in the zygote's books, nor
// a descriptor of ours.
func TestAbandonedForks(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	made, plan, err := newPythonZygote(t, d)
	if errors.Is(err, errors.ErrUnsupported) {
		return // not root
	}
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*zygoteMachine)
	for i := range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*4*time.Millisecond)
		plan.ID = fmt.Sprintf("abandoned-%d", i)
		m, f, err := p.Fork(ctx, plan)
		if err == nil {
			closeFiles([]*os.File{f.Stdin, f.Stdout, f.Stderr})
			err = m.Destroy(t.Context())
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		cancel()
	}
	if out := runFork(t, p, plan, "print(6 * 7)"); out != "42\n" {
		t.Errorf("after that a fork prints %q", out)
	}
	if n := p.link.Children(); n > 0 {
		t.Errorf("%d forks are waited for", n)
	}
}
