//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func prCases() []Case {
	return []Case{
		{
			ID: "PR-01", Title: "a fork bomb", Level: User, Severity: HostDoS, Source: "the oldest one",
			Expect: "forks fail at the limit; the cause is processes; a neighbour goes on; nothing is left",
			Attack: Payload{Code: "while True:\n    try: os.fork()\n    except OSError: pass", Limits: sandbox.Limits{Processes: 48, WallTimeMS: 60_000}},
			Around: func(t *trial) func() { return t.victim() },
			Judge: func(t *trial) error {
				// Without a cgroup the kernel counts the agent's tasks in, made or not, and its
				// limit lies two higher.
				if t.result.Usage.ProcessesPeak > 48+wire.MaxTasks+2 {
					return fmt.Errorf("%d processes at once", t.result.Usage.ProcessesPeak)
				}
				return errors.Join(t.ended(sandbox.StatusKilled, sandbox.CauseProcesses), t.victimFine())
			},
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: forkCode, Limits: sandbox.Limits{Processes: 300}})
				return t.said("children", "120") // it goes on beyond 48, and stops by itself
			}},
			Twin: &Twin{What: "thirty processes one after another and ten at once", Payload: Payload{Language: "shell", Code: "for i in $(seq 30); do /bin/true; done; for i in $(seq 10); do sleep 0.1 & done; wait; echo all"}, Want: "all"},
		},
		{
			ID: "PR-02", Title: "a grandchild in a session of its own that holds stdout open", Level: User, Severity: PeerDoS, Source: "judges that wait for the end of the pipe",
			Expect: "the run ends with its main process; pipes_held is set; the grandchild is gone",
			Attack: Payload{Language: "shell", Code: "(setsid sh -c 'setsid sleep 30 &' &); echo main is done", Quick: 3 * time.Second},
			Judge: func(t *trial) error {
				if !t.result.PipesHeld {
					return errors.New("pipes_held is not set")
				}
				return t.succeeded()
			},
			Control: Control{Without: "an end that does not wait for pipes", Run: func(a *arena) error {
				cmd := exec.CommandContext(a.Context(), "/bin/sh", "-c", "(setsid sleep 1.2 &); echo done")
				start := time.Now()
				if _, err := cmd.Output(); err != nil || time.Since(start) < time.Second {
					return fmt.Errorf("it returned after %v: %w", time.Since(start), err)
				}
				return nil
			}},
		},
		{
			ID: "PR-03", Title: "ignoring SIGTERM, stopping itself and everybody else", Level: User, Severity: SelfDoS, Source: "judges that ask politely",
			Expect: "wall_time within a second of the limit",
			Attack: Payload{Code: `
for s in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)
for i in range(5):
    if os.fork() == 0: time.sleep(60)
os.kill(-1, signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
`, Limits: sandbox.Limits{WallTimeMS: 700}, Quick: 2500 * time.Millisecond},
			Judge:   func(t *trial) error { return t.ended(sandbox.StatusKilled, sandbox.CauseWallTime) },
			Control: Control{Without: "SIGKILL to all", Run: survivesSIGTERM},
		},
		{
			ID: "PR-05", Title: "reaching into the agent and the first process: ptrace, memory, descriptors", Level: User, Severity: Inside, Source: "sandboxed-api",
			Expect: "EPERM, ENOSYS or not found, each",
			Attack: Payload{Code: fmt.Sprintf(`
PTRACE, READV, GETFD, PIDFD_OPEN, MADVISE, KCMP = %d, %d, %d, %d, 440, %d
say("seize", child(lambda: call(PTRACE, 0x4206, 1, 0, 0)))
say("readv", call(READV, 1, 0, 0, 0, 0, 0))
say("writev", call(READV + 1, 1, 0, 0, 0, 0, 0))
p = libc.syscall(PIDFD_OPEN, 1, 0)
say("getfd", call(GETFD, p, 0, 0))
say("kcmp", call(KCMP, os.getpid(), 1, 0, 0, 0))
for f in "mem maps environ fd stack syscall".split(): attempt(f, lambda: (os.listdir if f == "fd" else lambda n: os.close(os.open(n, os.O_RDONLY)))("/proc/1/" + f) and None)
`, number("ptrace"), number("process_vm_readv"), number("pidfd_getfd"), number("pidfd_open"), number("kcmp"))},
			Doors:   doors("EPERM|ENOSYS|ENOENT|EACCES", "seize readv writev getfd kcmp mem maps environ fd"),
			Control: Control{Without: "the filter, hidepid, another user", Jail: true},
		},
		{
			ID: "PR-08", Title: "an endless loop; a sleep; eight busy processes under one CPU", Level: User, Severity: Integrity, Source: "isolate, go-judge",
			Expect: "cpu_time, wall_time and cpu_time for the whole tree, within a second", Do: timeLimits,
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: "while time.process_time() < 0.5: pass\nsay('burnt', 1)", Limits: sandbox.Limits{CPUTimeMS: 5000}})
				return t.said("burnt", "1")
			}},
		},
		{
			ID: "PR-09", Title: "raising one's own limits, priority and scheduling class", Level: User, Severity: PeerDoS, Source: "own",
			Expect: "EPERM each",
			Attack: Payload{Code: `
import resource
for n in "NOFILE CORE MEMLOCK MSGQUEUE NICE RTPRIO FSIZE SIGPENDING".split():
    r = getattr(resource, "RLIMIT_" + n, {"SIGPENDING": 11, "MSGQUEUE": 12, "NICE": 13, "RTPRIO": 14}.get(n))
    hard = resource.getrlimit(r)[1]
    low = 1000 if hard < 0 else max(0, hard - 1)
    resource.setrlimit(r, (low, low))
    try: resource.setrlimit(r, (low + 1, low + 1)); say(n, "ok")
    except (OSError, ValueError): say(n, "EPERM")
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
attempt("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)))
`},
			Doors:   doors("EPERM|EACCES", "NOFILE CORE MEMLOCK MSGQUEUE NICE RTPRIO FSIZE SIGPENDING nice fifo"),
			Control: Control{Without: "no capabilities", Jail: true},
			Twin:    &Twin{What: "lowering them", Payload: Payload{Code: "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)); os.nice(5); say('ok', 1)"}, Want: "ok"},
		},
		{
			ID: "PR-11", Title: "a core dump", Level: User, Severity: HostLeak, Source: "isolate's manual: pipes ignore the limit",
			Expect: "no core file; the result says signaled",
			Attack: Payload{Code: `
import resource
try: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)); say("core", "ok")
except (OSError, ValueError): say("core", "EPERM")
pid = os.fork()
if pid == 0: os.abort()
_, status = os.waitpid(pid, 0)
say("dumped", os.WCOREDUMP(status))
`},
			Doors:   []Door{{"core", "EPERM", "ok"}, {"dumped", "False", ""}},
			Control: Control{Without: "the limit on core dumps", Jail: true},
		},
		{
			ID: "PR-12", Title: "taking every task there is, so that the agent cannot work", Level: User, Severity: SelfDoS, Source: "own",
			Expect: "the agent still ends the run in time and brings files out",
			Attack: Payload{Code: `
import threading
n = 0
open("proof.txt", "w").write("here")
for i in range(4):
    try: child = os.fork()
    except OSError: break # those before have taken all
    if child == 0:
        try:
            while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        except Exception: pass
        time.sleep(60)
time.sleep(0.5)
try:
    while os.fork(): pass
    time.sleep(60)
except OSError as e: say("full", name(e.errno)); sys.stdout.flush(); os._exit(0)
`, Artifacts: []string{"*.txt"}, Quick: 6 * time.Second},
			Judge: func(t *trial) error { return errors.Join(t.said("full", "EAGAIN"), t.cameOut(1, "proof.txt")) },
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: forkCode, Limits: sandbox.Limits{Processes: 300}})
				return t.said("children", "120")
			}},
			Twin: &Twin{What: "thirty threads", Payload: Payload{Code: "import threading\nts = [threading.Thread(target=time.sleep, args=(.05,)) for i in range(30)]\nfor t in ts: t.start()\nfor t in ts: t.join()\nsay('joined', len(ts))"}, Want: "joined 30"},
		},
	}
}

const forkCode = `
n = 0
try:
    while n < 120:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        n += 1
except OSError: pass
say("children", n)
`

// survivesSIGTERM shows a program that a polite request does not end.
func survivesSIGTERM(a *arena) error {
	cmd := exec.CommandContext(a.Context(), "/bin/sh", "-c", "trap '' TERM; kill -STOP $$; sleep 60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	time.Sleep(50 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		return errors.New("SIGTERM ended it")
	case <-time.After(300 * time.Millisecond):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-ended
	return nil
}

// timeLimits runs what CPU and wall time must end.
func timeLimits(t *trial) error {
	var errs []error
	for _, x := range []struct {
		code  string
		l     sandbox.Limits
		cause sandbox.CauseKind
	}{
		{"while True: pass", sandbox.Limits{CPUTimeMS: 400, WallTimeMS: 10_000}, sandbox.CauseCPUTime},
		{"time.sleep(60)", sandbox.Limits{CPUTimeMS: 5000, WallTimeMS: 400}, sandbox.CauseWallTime},
		{"for i in range(3): os.fork()\nwhile True: pass", sandbox.Limits{CPUTimeMS: 1000, WallTimeMS: 20_000, Processes: 400}, sandbox.CauseCPUTime},
		{"for i in range(6):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)", sandbox.Limits{CPUTimeMS: 1000, WallTimeMS: 20_000}, sandbox.CauseCPUTime},
	} {
		r := t.run(Payload{Code: x.code, Limits: x.l})
		if err := r.ended(sandbox.StatusKilled, x.cause); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSpace(x.code), err))
			continue
		}
		if got := r.result.Usage.CPUMS; x.cause == sandbox.CauseCPUTime && got > 2*x.l.CPUTimeMS+200 {
			errs = append(errs, fmt.Errorf("%s: used %d ms of %d", strings.TrimSpace(x.code), got, x.l.CPUTimeMS))
		}
	}
	return errors.Join(errs...)
}

func signalCases() []Case {
	return []Case{
		{
			ID: "PR-06", Title: "every signal at the first process, many times, in every way", Level: User, Severity: SelfDoS, Source: "own",
			Expect: "the agent lives on: the run succeeds and its file comes out",
			Attack: Payload{Code: fmt.Sprintf(`
open("proof.txt", "w").write("here")
fd = libc.syscall(%d, 1, 0)
for i in range(150):
    for s in range(1, 65):
        libc.kill(1, s); libc.syscall(%d, fd, s, 0, 0); libc.syscall(%d, 1, 1, s)
time.sleep(0.05)
say("alive", 1)
`, number("pidfd_open"), number("pidfd_send_signal"), number("tgkill")), Artifacts: []string{"*.txt"}},
			Judge: func(t *trial) error { return errors.Join(t.succeeded(), t.said("alive", "1"), t.cameOut(1)) },
			Control: Control{Without: "the first process's protection", Run: func(a *arena) error {
				cmd := exec.CommandContext(a.Context(), "/bin/sleep", "30")
				if err := cmd.Start(); err != nil {
					return err
				}
				_ = cmd.Process.Signal(syscall.SIGTERM)
				if err := cmd.Wait(); err == nil {
					return errors.New("SIGTERM did not end it")
				}
				return nil
			}},
		},
		{
			ID: "PR-07", Title: "changing the agent's limits, priority, processors and process group", Level: User, Severity: Inside, Source: "own",
			Expect: "EPERM each (where the agent is the same user, as for an ordinary user without subordinate ids, it may cripple itself, which ends only its own run)",
			Attack: Payload{Code: fmt.Sprintf(`
buf = ctypes.create_string_buffer(128)
say("prlimit", call(%d, 1, 7, buf, 0))
say("affinity", call(%d, 1, 128, buf))
say("scheduler", call(%d, 1, 5, buf))
say("priority", call(%d, 0, 1, 19))
attempt("pgid", os.setpgid, 1, 1)
attempt("kill", os.kill, 1, 0)
`, number("prlimit64"), number("sched_setaffinity"), number("sched_setscheduler"), number("setpriority"))},
			Doors:   []Door{{"prlimit", "EPERM", "ok"}, {"affinity", "EPERM", "EINVAL|ok"}, {"scheduler", "EPERM", "ok"}, {"priority", "EPERM|EACCES", "ok"}, {"kill", "EPERM", "ok"}},
			Needs:   []string{sandbox.FeatureUIDBlock},
			Control: Control{Without: "another user for the agent", Jail: true},
		},
	}
}
