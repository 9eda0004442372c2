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
	exit                 int // of pinfold
	rootOnly             bool
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
		name: "fork bomb in Python", language: "python", code: "import os\nwhile True: os.fork()", args: []string{"--processes", "32"},
		kind: sandbox.CauseProcesses, rootOnly: true, status: sandbox.StatusFailed, exit: 1,
	},
	{
		name: "fork bomb in Bash", language: "bash", code: ":(){ :|:& };:", args: []string{"--processes", "32"},
		kind: sandbox.CauseProcesses, status: sandbox.StatusKilled, exit: 137, rootOnly: true,
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
	{
		name: "forbidden call", language: "python", code: "import ctypes; ctypes.CDLL(None).syscall(169, 0, 0, 0)", // reboot
		kind: sandbox.CauseSyscall, status: sandbox.StatusFailed, exit: 128 + 31,
	},
	{
		name: "file size", language: "sh", code: "trap - XFSZ; exec dd if=/dev/zero of=big bs=64k", args: []string{"--file-size", "1MiB"},
		kind: sandbox.CauseFileSize, status: sandbox.StatusFailed, exit: 128 + 25,
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
			r, o := run(t, bin, c.language, c.code, c.args...)
			if c.rootOnly && os.Geteuid() != 0 {
				if r.Cause.Kind != c.kind {
					t.Fatalf("cause %+v, want %s", r.Cause, c.kind)
				}
				return // without a cgroup the kernel counts no refusals: how it ends differs
			}
			if r.Cause.Kind != c.kind || r.Status != c.status || o.code != c.exit {
				t.Fatalf("%s by %+v, exit status %d; want %s by %s and %d\nstderr: %.300s", r.Status, r.Cause, o.code, c.status, c.kind, c.exit, r.Stderr)
			}
			checkCause(t, r)
		})
	}
	again(t)
}

// checkCause wants what every cause of a limit must say.
func checkCause(t *testing.T, r sandbox.Result) {
	t.Helper()
	if r.Cause.Evidence == "" {
		t.Error("a cause without evidence")
	}
	for _, info := range sandbox.LimitTable() {
		if info.Cause == r.Cause.Kind && (r.Cause.Limit == 0 || r.Cause.Observed == 0 || !strings.Contains(r.Cause.Hint, "--"+info.Flag)) {
			t.Errorf("limit, observation or hint is missing: %+v", r.Cause)
		}
	}
	if r.TimedOut != (r.Cause.Kind == sandbox.CauseCPUTime || r.Cause.Kind == sandbox.CauseWallTime) {
		t.Errorf("timed_out is %v for %s", r.TimedOut, r.Cause.Kind)
	}
	if r.Usage.WallMS == 0 && r.Usage.CPUMS == 0 || r.Usage.MemoryPeakBytes == 0 || r.Usage.ProcessesPeak == 0 {
		t.Errorf("usage is missing: %+v", r.Usage)
	}
}
