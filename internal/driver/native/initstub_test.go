//go:build linux

package native

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/linux/initstub"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// stubbed is a forked interpreter in a machine with an init stub.
type stubbed struct {
	*testing.T
	*machine
	forked *zygote.Child
	out    *bufio.Reader
}

// lull makes a fork that nobody has told anything.
func lull(t *testing.T, p driver.Zygote, plan driver.Plan) *stubbed {
	t.Helper()
	plan.ID = fmt.Sprintf("stub-%d", forkCount.Add(1))
	m, f, err := p.Fork(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeFiles([]*os.File{f.Stdin, f.Stdout, f.Stderr})
		if err := m.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &stubbed{t, m.(*machine), f, bufio.NewReader(f.Stdout)}
}

// run hands over a program and waits until it says "ready".
func (s *stubbed) run(code string) {
	s.Helper()
	hand(s, s.forked, code)
	if line, err := s.out.ReadString('\n'); err != nil || line != "ready\n" {
		said := make([]byte, 1000)
		_ = s.forked.Stderr.SetReadDeadline(time.Now().Add(time.Second))
		n, _ := s.forked.Stderr.Read(said)
		s.Fatalf("the program said %q, then %v: %s", line, err, said[:n])
	}
}

// state says whether process 1 is the agent, and how many tasks it is.
func (s *stubbed) state() (agent bool, tasks int) {
	s.Helper()
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.child.PID))
	if err != nil {
		s.Fatal(err)
	}
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", s.child.PID))
	return !strings.Contains(program, "pinfold-initstub"), len(all)
}

// greet has the agent start.
func (s *stubbed) greet() *guest.Guest {
	s.Helper()
	conn, err := s.Dial(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	g, err := guest.New(s.Context(), conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: true, Home: sandbox.Home})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = g.Close() }) // with the machine
	return g
}

// end ends the guest, soon.
func (s *stubbed) end() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	if err := s.KillGuest(ctx); err != nil {
		s.Fatal(err)
	}
	if left := insideOf(s.T, s.child.PID); len(left) > 0 {
		s.Fatalf("%v live on", left)
	}
}

// zombies counts the dead whom nobody has collected.
func (s *stubbed) zombies() (n int) {
	s.Helper()
	for _, pid := range insideOf(s.T, s.child.PID) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if bytes.Contains(stat, []byte(") Z ")) {
			n++
		}
	}
	return n
}

// newZygote starts a zygote for the tests of init stubs, or returns
// nil where there is none.
func newZygote(t *testing.T, limits sandbox.Limits) (driver.Zygote, driver.Plan) {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	plan, spec := zygoteSpec(t, d)
	p, err := startZygote(t, t.Context(), d, plan, spec)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, plan // not root
	}
	if err != nil {
		t.Fatal(err)
	}
	report, err := d.Probe(t.Context(), imagetest.Host(t))
	if err == nil {
		plan, err = driver.MakePlan(sandbox.Spec{Code: "x", Limits: limits}.WithDefaults().Machine(), imagetest.Host(t), report, "x")
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, plan
}

// A run that needs no agent has none, whatever it leaves behind.
func TestInitStub(t *testing.T) {
	p, plan := newZygote(t, sandbox.Limits{})
	if p == nil {
		return
	}
	s := lull(t, p, plan)
	s.run("import os\nfor _ in range(20):\n  if os.fork() == 0:\n    for _ in range(3):\n      if os.fork() == 0: os._exit(0)\n    os._exit(0)\n  os.wait()\nprint('ready', flush=True)\nopen(0).read()")
	for until := time.Now().Add(time.Minute); len(insideOf(t, s.child.PID)) > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("nobody collects orphans")
		}
	}
	if agent, tasks := s.state(); agent || tasks != 1 {
		t.Errorf("process 1 has become the agent: %v, in %d tasks", agent, tasks)
	}
	if u := usageOf(t, s); u.Processes != 1 {
		t.Errorf("%d processes of the guest, not 1", u.Processes)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	// The control: what the program itself does not collect is seen.
	s = lull(t, p, plan)
	s.run("import os\nif os.fork() == 0: os._exit(0)\nos.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\nprint('ready', flush=True)\nopen(0).read()")
	if n := s.zombies(); n != 1 {
		t.Errorf("control: %d zombies are seen", n)
	}
	s.end()
}

// A limit of one process leaves room for a fork, and for one more at most.
func TestForkAlone(t *testing.T) {
	p, plan := newZygote(t, sandbox.Limits{Processes: 1})
	if p == nil {
		return
	}
	s := lull(t, p, plan)
	s.run("import os\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: open(0).read()\n    n += 1\nexcept OSError: pass\nprint('ready' if n <= 1 else n, flush=True)\nopen(0).read()")
	s.end()
}

// The agent starts where the program waits, and where it has run, and does all its
// work. Orphans that ended before it was there are gone.
func TestInitStubBecomesAgent(t *testing.T) {
	p, plan := newZygote(t, sandbox.Limits{})
	if p == nil {
		return
	}
	before := lull(t, p, plan)
	g := before.greet()
	if err := g.WriteFile(t.Context(), "in", 0o644, 2, strings.NewReader("in")); err != nil {
		t.Fatal(err)
	}
	before.run("open('out', 'w').write(open('in').read() + 'out'); print('ready', flush=True); open(0).read()")
	after := lull(t, p, plan)
	after.run("import os, time; open('out', 'w').write('inout'); os.fork(); os.fork(); print('ready', flush=True) if os.getppid() == 0 else 0; time.sleep(60)")
	if err := before.KillGuest(t.Context()); err == nil {
		t.Error("an init stub has killed the guest where the agent runs")
	}
	if err := g.KillAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	after.end()
	after.end() // again
	for _, s := range []*stubbed{before, after} {
		if s == after {
			g = s.greet()
		}
		if agent, tasks := s.state(); !agent || tasks > wire.MaxTasks {
			t.Errorf("process 1 has become the agent: %v, in %d tasks", agent, tasks)
		}
		var out bytes.Buffer
		if _, err := g.ReadFile(t.Context(), "out", 10, &out); err != nil || out.String() != "inout" {
			t.Errorf("the file has %q: %v", out.String(), err)
		}
		child, err := g.Start(t.Context(), guest.Command{Args: []string{"/bin/sh", "-c", "(sleep 0.01 &); exit 3"}, Dir: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID}, guest.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := child.Wait(t.Context()); err != nil || e.Code != 3 {
			t.Errorf("%+v, %v", e, err)
		}
		if err := g.KillAll(t.Context()); err != nil || len(insideOf(t, s.child.PID)) > 0 {
			t.Errorf("%v live on: %v", insideOf(t, s.child.PID), err)
		}
		if _, err := s.Dial(t.Context()); err == nil {
			t.Error("the connection was handed out again")
		}
	}
}

// Whatever the guest has filled, there is room for the agent when it is needed,
// and the limits of the guest are what they are.
func TestAgentStartsInFullMachines(t *testing.T) {
	limits := sandbox.Limits{MemoryBytes: 64 << 20, Processes: 12, DiskBytes: 8 << 20, Inodes: 1024}
	p, plan := newZygote(t, limits)
	if p == nil {
		return
	}
	for _, test := range []struct {
		name, code string
		full       func(driver.Usage) bool
	}{
		{"processes", "import os, time\nme = os.getpid()\nfor n in range(100):\n  try:\n    if os.fork() == 0:\n      while True:\n        try:\n          if os.fork() > 0: pass\n        except OSError: pass\n  except OSError: break\n", func(u driver.Usage) bool {
			return u.Processes >= limits.Processes && u.Processes <= limits.Processes+1 && u.ProcessesDenied > 0
		}},
		{"memory that outlives processes", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nfor n in range(40):\n  i = libc.shmget(0, 1 << 20, 0o1600)\n  ctypes.memset(libc.shmat(i, None, 0), 1, 1 << 20)\n", func(u driver.Usage) bool { return u.MemoryBytes > 40<<20 }},
		{"disk", "f = open('x', 'wb')\ntry:\n  while True: f.write(bytes(1 << 16))\nexcept OSError: pass\n", func(u driver.Usage) bool { return u.DiskFull }},
		{"inodes", "try:\n  for n in range(10000): open('x%d' % n, 'w')\nexcept OSError: pass\n", func(u driver.Usage) bool { return u.InodesFull }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := lull(t, p, plan)
			s.run(test.code + "print('ready', flush=True)\nopen(0).read()")
			if u := usageOf(t, s); !test.full(u) {
				t.Errorf("control: it is not full: %+v", u)
			}
			s.end()
			g := s.greet()
			if st, err := g.Stat(t.Context(), "main.py"); err != nil || st.Type != sandbox.FileRegular {
				t.Errorf("%+v, %v", st, err)
			}
			if u := usageOf(t, s); u.Processes != 0 || u.OOMKills > 0 {
				t.Errorf("%+v", u)
			}
			_ = s.Destroy(t.Context())
			if u := usageOf(t, s); test.name == "processes" && (u.ProcessesPeak < limits.Processes || u.ProcessesPeak > limits.Processes+1) {
				t.Errorf("at most %d processes, not %d", u.ProcessesPeak, limits.Processes)
			}
		})
	}
}

// A machine that has ended, or whose process 1 says something else than it should,
// or nothing, is an error, at once or when time is over, and stays one.
func TestAgentThatDoesNotStart(t *testing.T) {
	t.Run("a machine that has ended", func(t *testing.T) {
		p, plan := newZygote(t, sandbox.Limits{})
		if p == nil {
			return
		}
		for _, ask := range []func(*machine) error{
			func(m *machine) error { return m.KillGuest(t.Context()) },
			func(m *machine) error { _, err := m.Dial(t.Context()); return err },
		} {
			s := lull(t, p, plan)
			if err := unix.Kill(s.child.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-s.Dead()
			if err := ask(s.machine); err == nil || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("got %v", err)
			}
		}
	})
	for _, test := range []struct {
		name   string
		answer func(theirs *os.File)
		want   string
	}{
		{"garbled", func(f *os.File) { _, _ = f.WriteString("x") }, "process 1 answered 0x78"},
		{"gone", func(f *os.File) { _ = f.Close() }, "EOF"},
		{"silent", func(*os.File) {}, context.DeadlineExceeded.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			ours, theirs, err := unixpair.New(unix.SOCK_STREAM)
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			defer theirs.Close()
			m := &machine{conn: ours, dead: make(chan struct{}), stub: initStub{waits: true}}
			go func() {
				if b := make([]byte, 1); test.want != "" {
					if n, err := theirs.Read(b); err != nil || n != 1 || b[0] != initstub.KillGuest {
						t.Errorf("asked for %q: %v", b[:n], err)
					}
				}
				test.answer(theirs)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err = m.KillGuest(ctx)
			var known *sandbox.Error
			if !errors.As(err, &known) || known.Code != sandbox.CodeSetupFailed || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v", err)
			}
			if again := m.KillGuest(t.Context()); !errors.Is(again, err) {
				t.Errorf("the second time: %v", again)
			}
			if conn, dialErr := m.Dial(t.Context()); conn != nil || !errors.Is(dialErr, err) {
				t.Errorf("dialled after that: %v", dialErr)
			}
		})
	}
}
