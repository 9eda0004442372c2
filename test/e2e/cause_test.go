//go:build linux

package e2e

import (
	"os"
	"strings"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// What ends a program, and how it is told.
var causes = []struct {
	name, language, code string
	args                 []string
	kind                 sandbox.CauseKind
	status               sandbox.Status
	exit                 int    // of pinfold
	stderr               string // somewhere in the program's stderr
}{
	{
		name: "endless loop", language: "python", code: "while True: pass", args: []string{"--cpu-time", "500ms"},
		kind: sandbox.CauseCPUTime, status: sandbox.StatusKilled, exit: 124,
	},
	{
		name: "eight busy threads", language: "c", args: []string{"--cpu-time", "800ms"},
		code: "#include <pthread.h>\nvoid *f(void *x) { for (;;); }\nint main() { pthread_t t; for (int i = 0; i < 8; i++) pthread_create(&t, 0, f, 0); f(0); }",
		kind: sandbox.CauseCPUTime, status: sandbox.StatusKilled, exit: 124,
	},
	{
		name: "sleep", language: "python", code: "import time; time.sleep(60)", args: []string{"--timeout", "500ms"},
		kind: sandbox.CauseWallTime, status: sandbox.StatusKilled, exit: 124,
	},
	{
		name: "stopped", language: "python", code: "import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGSTOP)",
		args: []string{"--timeout", "500ms"}, kind: sandbox.CauseWallTime, status: sandbox.StatusKilled, exit: 124,
	},
	{
		name: "growing memory", language: "python", code: "a = []\nwhile True: a.append(bytearray(1 << 22))", args: []string{"--memory", "64MiB"},
		kind: sandbox.CauseMemory, status: sandbox.StatusKilled, exit: 137,
	},
	{
		name: "growing memory of many processes", language: "python", args: []string{"--memory", "64MiB"},
		code: "import os, time\nfor i in range(8):\n  if os.fork() == 0:\n    a = bytearray(b'x' * (16 << 20)); time.sleep(60)\ntime.sleep(60)",
		kind: sandbox.CauseMemory, status: sandbox.StatusKilled, exit: 137,
	},
	{
		name: "growing shared memory", language: "python", args: []string{"--memory", "64MiB"},
		code: "import mmap, time\nm = mmap.mmap(-1, 512 << 20)\nwhile True: m.write(b'x' * (1 << 20)); time.sleep(0.001)",
		kind: sandbox.CauseMemory, status: sandbox.StatusKilled, exit: 137,
	},
	{
		name: "fork bomb in Python", language: "python", args: []string{"--processes", "32"},
		code: "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
		kind: sandbox.CauseProcesses, status: sandbox.StatusKilled, exit: 137,
	},
	{
		name: "fork bomb that is left behind", language: "python", args: []string{"--processes", "32"},
		// The program ends when its child's bomb has come to the limit.
		code: "import os\nif os.fork() == 0:\n  while True:\n    try: os.fork()\n    except OSError: pass\nwhile True:\n  try: p = os.fork()\n  except OSError: break\n  if p == 0: os._exit(0)\n  os.waitpid(p, 0)",
		kind: sandbox.CauseProcesses, status: sandbox.StatusKilled, exit: 137,
	},
	{ // what is bombed by others sleeps: a shell of the bomb gives up after a while
		name: "fork bomb in Bash", language: "bash", code: "(:(){ :|:& }; :) & exec sleep 60", args: []string{"--processes", "32"},
		kind: sandbox.CauseProcesses, status: sandbox.StatusKilled, exit: 137, stderr: "fork: retry: Resource temporarily unavailable",
	},
	{
		name: "a fork that is refused", language: "python", args: []string{"--processes", "32"}, stderr: "Resource temporarily unavailable",
		code: "import os, time\nwhile True:\n  if os.fork() == 0:\n    os.close(1); os.close(2); time.sleep(60)",
		kind: sandbox.CauseProcesses, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "threads", language: "python", args: []string{"--processes", "32"}, stderr: "can't start new thread",
		code: "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(1,)).start()",
		kind: sandbox.CauseProcesses, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "full disk", language: "python", code: "f = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * 1048576)",
		kind: sandbox.CauseDisk, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "full disk in shared memory", language: "sh", code: "dd if=/dev/zero of=/dev/shm/x bs=1M 2>/dev/null", args: []string{"--disk", "8MiB"},
		kind: sandbox.CauseDisk, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "a million files", language: "python", code: "for i in range(1000000): open(f'/tmp/{i}', 'w').close()",
		args: []string{"--timeout", "2m"}, // it takes its time on a busy host
		kind: sandbox.CauseInodes, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "flood", language: "sh", code: "yes",
		kind: sandbox.CauseOutput, status: sandbox.StatusKilled, exit: 137,
	},
	{
		name: "flood on stderr", language: "sh", code: "yes >&2", args: []string{"--output-limit", "10B"},
		kind: sandbox.CauseOutput, status: sandbox.StatusKilled, exit: 137,
	},
	{
		name: "abort", language: "python", code: "import os; os.abort()",
		kind: sandbox.CauseSignaled, status: sandbox.StatusFailed, exit: 128 + 6,
	},
	{ // what a program does to itself is no limit of ours
		name: "a signal like the filter's", language: "sh", code: "kill -SYS $$",
		kind: sandbox.CauseSignaled, status: sandbox.StatusFailed, exit: 128 + 31,
	},
	{
		name: "a signal like a limit's", language: "sh", code: "kill -XFSZ $$",
		kind: sandbox.CauseSignaled, status: sandbox.StatusFailed, exit: 128 + 25,
	},
	{
		name: "an exit status like the filter's", language: "sh", code: "exit 159",
		kind: sandbox.CauseExited, status: sandbox.StatusFailed, exit: 128 + 31,
	},
	{
		name: "forbidden call", language: "python", code: "import ctypes; ctypes.CDLL(None).syscall(169, 0, 0, 0)", // reboot
		kind: sandbox.CauseSyscall, status: sandbox.StatusFailed, exit: 128 + 31,
	},
	{
		name: "forbidden call of a shell's child", language: "sh", code: "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(169, 0, 0, 0)'",
		kind: sandbox.CauseSyscall, status: sandbox.StatusFailed, exit: 128 + 31,
	},
	{
		name: "forbidden call in Go", language: "go", // whose runtime catches SIGSYS
		code: "package main\n\nimport \"syscall\"\n\nfunc main() { syscall.RawSyscall(169, 0, 0, 0) }\n",
		kind: sandbox.CauseSyscall, status: sandbox.StatusFailed, exit: 128 + 9,
	},
	{
		name: "file size", language: "c", args: []string{"--file-size", "1MiB"},
		code: "#include <stdio.h>\nint main() { FILE *f = fopen(\"big\", \"w\"); for (;;) fputc('x', f); }",
		kind: sandbox.CauseFileSize, status: sandbox.StatusFailed, exit: 128 + 25,
	},
	{ // Python ignores SIGXFSZ, and the kernel records nothing of the refusal
		name: "file size in Python", language: "python", code: "f = open('big', 'wb')\nwhile True: f.write(b'x' * 65536)",
		args: []string{"--file-size", "1MiB"}, stderr: "[Errno 27] File too large",
		kind: sandbox.CauseExited, status: sandbox.StatusFailed, exit: 1,
	},
	{ // as above
		name: "open files", language: "python", code: "f = []\nwhile True: f.append(open('/dev/null')); print(len(f))",
		args: []string{"--open-files", "32"}, stderr: "[Errno 24] Too many open files",
		kind: sandbox.CauseExited, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "own exit status", language: "python", code: "import sys; sys.exit(3)",
		kind: sandbox.CauseExited, status: sandbox.StatusFailed, exit: 3,
	},
}

func TestCauses(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	for _, c := range causes {
		t.Run(c.name, func(t *testing.T) {
			r, o := runCause(t, bin, c.kind, c.language, c.code, c.args...)
			if c.language == "bash" && slept(r) {
				c.kind, c.exit = sandbox.CauseWallTime, 124
			}
			if r.Cause.Kind != c.kind || r.Status != c.status || o.code != c.exit {
				t.Fatalf("%s by %+v, exit status %d; want %s by %s and %d\nstderr: %.300s", r.Status, r.Cause, o.code, c.status, c.kind, c.exit, r.Stderr)
			}
			if !strings.Contains(r.Stderr, c.stderr) {
				t.Errorf("stderr without %q: %.300s", c.stderr, r.Stderr)
			}
			if (r.Cause.Syscall == "reboot") != (c.kind == sandbox.CauseSyscall) {
				t.Errorf("the system call is %q", r.Cause.Syscall)
			}
			checkCause(t, r)
		})
	}
	again(t)
}

// slept says whether a shell's bomb slept until its time was over, which one may where
// refusals are not counted and its shells hardly get a processor (docs/rough-edges.md): its
// hint says how many there were, and not how many the kernel refused.
func slept(r sandbox.Result) bool {
	return r.Cause.Kind == sandbox.CauseWallTime && strings.Contains(r.Cause.Hint, "processes and threads were seen at once")
}

// runCause runs a program that ends by kind. A bomb whose tasks hardly get a processor may
// end by its time, root's only if it is a shell's (docs/rough-edges.md): it is tried again,
// unless its time is as good.
func runCause(t *testing.T, bin string, kind sandbox.CauseKind, language, code string, args ...string) (sandbox.Result, output) {
	t.Helper()
	r, o := run(t, bin, language, code, args...)
	may := kind == sandbox.CauseProcesses && (language == "bash") == (os.Geteuid() == 0)
	for again := 0; again < 2 && may && r.Cause.Kind == sandbox.CauseWallTime; again++ {
		r, o = run(t, bin, language, code, args...)
	}
	return r, o
}

// Programs that keep to their limits are left alone, however near they come.
var modest = []struct {
	name, code string
	args       []string
}{
	{
		"as many processes as it may", "import os, time\nfor i in range(3):\n  if os.fork() == 0: time.sleep(2.5); os._exit(0)\nfor i in range(3): os.wait()",
		[]string{"--processes", "4"},
	},
	{
		"a pool whose first process asks again and again",
		"import os, time\nleft, lives = 24, 0\nwhile left or lives:\n  try:\n    if left:\n      if os.fork() == 0: time.sleep(3); os._exit(0)\n      left -= 1; lives += 1; continue\n  except OSError: pass\n  time.sleep(0.02)\n  while lives and os.waitpid(-1, os.WNOHANG)[0]: lives -= 1",
		[]string{"--processes", "16"},
	},
	{
		"the same, whose others begin and end together",
		"import os, time\nleft, lives = 45, 0\nwhile left or lives:\n  try:\n    if left:\n      if os.fork() == 0: time.sleep(2.5); os._exit(0)\n      left -= 1; lives += 1; continue\n  except OSError: pass\n  time.sleep(0.02)\n  while lives and os.waitpid(-1, os.WNOHANG)[0]: lives -= 1",
		[]string{"--processes", "16"},
	},
	{
		"more threads than it may have, and then without",
		"import threading, time\ntry:\n  for i in range(20): threading.Thread(target=time.sleep, args=(3,)).start()\nexcept RuntimeError: pass\ntime.sleep(3)",
		[]string{"--processes", "16"},
	},
	{"alone", "import time; time.sleep(2.5)", []string{"--processes", "1"}},
	{
		"much memory in common", "import os, time\nx = bytearray(b'x' * (30 << 20))\nfor i in range(10):\n  if os.fork() == 0: time.sleep(1); os._exit(0)\nfor i in range(10): os.wait()",
		[]string{"--memory", "100MiB"},
	},
	{"nearly all the memory", "import time; x = bytearray(40 << 20); x[::4096] = b'x' * 10240; time.sleep(1)", []string{"--memory", "64MiB"}},
	{
		"nearly all the disk, and then memory", "f = open('x', 'wb')\nfor i in range(60): f.write(b'x' * (1 << 20))\nf.close(); x = bytearray(40 << 20); x[::4096] = b'x' * 10240",
		[]string{"--memory", "96MiB", "--disk", "64MiB"},
	},
	{"more output than is kept", "print('x' * (4 << 20))", []string{"--output-limit", "1KiB"}},
}

func TestModestPrograms(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	t.Run("all", func(t *testing.T) {
		for _, c := range modest {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if r, o := run(t, bin, "python", c.code, c.args...); r.Status != sandbox.StatusSucceeded || o.code != 0 {
					t.Fatalf("%s by %+v\nstderr: %.300s", r.Status, r.Cause, r.Stderr)
				}
			})
		}
	})
	again(t)
}

// checkCause wants what every cause of a limit must say.
func checkCause(t *testing.T, r sandbox.Result) {
	t.Helper()
	if r.Cause.Evidence == "" {
		t.Error("a cause without evidence")
	}
	for _, info := range sandbox.LimitTable() {
		if info.Cause == r.Cause.Kind && (r.Cause.Limit == 0 || r.Cause.Observed == 0 || !strings.Contains(r.Cause.Hint, `"limits": {"`+info.Field+`": `)) {
			t.Errorf("limit, observation or hint is missing: %+v", r.Cause)
		}
	}
	if r.TimedOut != (r.Cause.Kind == sandbox.CauseCPUTime || r.Cause.Kind == sandbox.CauseWallTime) {
		t.Errorf("timed_out is %v for %s", r.TimedOut, r.Cause.Kind)
	}
	if r.Usage.MemoryPeakBytes == 0 || r.Usage.ProcessesPeak == 0 {
		t.Errorf("usage is missing: %+v", r.Usage)
	}
}
