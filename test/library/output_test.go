//go:build linux

package library

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// outputPrograms write what must come out of a sandbox as it does without one. Where
// many processes write at once, which line comes first is chance.
var outputPrograms = []struct {
	name, code string
	anyOrder   bool
}{
	{name: "many lines", code: "for i in range(300000): print(i)"},
	{name: "large writes under signals", code: `
import signal, subprocess
signal.signal(signal.SIGCHLD, lambda *a: None)
children = [subprocess.Popen(['sleep', '0.05']) for i in range(30)]
for i in range(100): print('y' * 200000)
for c in children: c.wait()
`},
	{name: "signals and lines", code: `
import signal, time
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for i in range(100000): print('line', i)
signal.setitimer(signal.ITIMER_REAL, 0)
`},
	{name: "eight processes", anyOrder: true, code: `
import subprocess, sys
open('child.py', 'w').write("import sys\nfor i in range(300): print(sys.argv[1] * 40, i)\n")
children = [subprocess.Popen([sys.executable, 'child.py', str(k)]) for k in range(8)]
for c in children: c.wait()
`},
	{name: "eight forks", anyOrder: true, code: `
import multiprocessing
def child(k):
    for i in range(300): print(str(k) * 40, i)
children = [multiprocessing.get_context('fork').Process(target=child, args=(k,)) for k in range(8)]
for c in children: c.start()
for c in children: c.join()
`},
	{name: "forks among many lines", code: `
import os, sys
for i in range(50):
    for k in range(400): print(i, k)
    sys.stdout.flush()
    if os.fork() == 0:
        print('child', i, flush=True)
        os._exit(0)
    os.wait()
`},
	{name: "bytes among many lines", code: `
import sys
for i in range(50):
    for k in range(400): print(i, k)
    sys.stdout.flush()
    sys.stdout.buffer.write(b'\xff bytes %d\n' % i)
    sys.stdout.buffer.flush()
`},
	{name: "other programs among many lines", code: `
import os, subprocess, sys
for i in range(30):
    for k in range(400): print(i, k)
    sys.stdout.flush()
    if i % 3 == 0: os.system('echo shell')
    if i % 3 == 1: subprocess.run(['echo', 'program'])
    if i % 3 == 2: os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'spawned'], os.environ), 0)
`},
	{name: "at the end", code: `
import atexit
class Last:
    def __del__(self): print('finalized')
last = Last()
atexit.register(lambda: [print('exit', i) for i in range(5000)])
for i in range(5000): print(i)
print('unfinished', end='')
`},
	{name: "pieces of lines", code: `
import sys
for i in range(100000): sys.stdout.write(str(i) + ' ')
print(*range(1000), sep=',', end='')
sys.stdout.writelines(['a\n', 'b'])
`},
	{name: "stdout kept elsewhere", code: `
import io, json, sys
for i in range(20000): print(i)
real, sys.stdout = sys.stdout, io.StringIO()
print('lost')
json.dump({'kept': list(range(3000))}, real)
class Last:
    def __del__(self): real.write('to the last')
last = Last()
`},
	{name: "bytes kept elsewhere", code: `
import sys
for i in range(20000): print(i)
sys.stdout.flush()
out, sys.stdout = sys.stdout.buffer, sys.stderr
for i in range(3000): out.write(b'record %06d\n' % i)
`},
	{name: "stdout detached", code: `
import sys
for i in range(20000): print(i)
out = sys.stdout.detach()
sys.stdout = sys.__stdout__ = None
for i in range(3000): out.write(b'record %06d\n' % i)
`},
	{name: "other streams", code: `
import io, os, sys
for i in range(1000): print(i)
sys.stdout.flush()
print(sys.stdout.fileno(), sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.mode, sys.stdout.name, sys.stdout.newlines)
print(sys.stdout, sys.stdout.buffer, sys.stdout.buffer.raw, type(sys.stdout), isinstance(sys.stdout, io.TextIOWrapper))
print(sys.__stdout__ is sys.stdout, sys.stdout.buffer is sys.stdout.buffer, sys.stderr.line_buffering)
sys.stdout.flush()
os.write(1, b'direct\n')
sys.stdout.reconfigure(encoding='latin-1', errors='replace', line_buffering=False)
for i in range(1000): print('\xe9\u2603', i)
old, sys.stdout = sys.stdout, io.StringIO()
print('lost')
sys.stdout = old
again = io.TextIOWrapper(sys.stdout.detach(), 'utf-8')
sys.stdout = again
for i in range(1000): print('\xe9\u2603', i)
sys.stdout.buffer.raw.write(b'')
`},
}

// eightTimes is what the programs print whose lines come in any order.
func eightTimes() string {
	var b strings.Builder
	for k := range 8 {
		for i := range 300 {
			fmt.Fprintf(&b, "%s %d\n", strings.Repeat(strconv.Itoa(k), 40), i)
		}
	}
	return b.String()
}

// TestOutputIsWhatTheProgramWrote compares with Python outside, to the byte.
func TestOutputIsWhatTheProgramWrote(t *testing.T) {
	ledger.Check(t)
	w := pooled(t)
	living := w.create(t, sandbox.Create{Limits: pooledLimits})
	for _, p := range outputPrograms {
		t.Run(p.name, func(t *testing.T) {
			want := canonical(eightTimes(), true) // outside, buffers of 8 KiB may be torn where they meet in a full pipe
			if !p.anyOrder {
				want = outside(t, p.code)
			}
			for _, cold := range []bool{true, false} {
				r := must(w.Run(t.Context(), sandbox.Spec{Language: "python", Code: p.code, Limits: pooledLimits, Cold: cold}, client.RunOptions{}))(t)
				if r.Status != sandbox.StatusSucceeded || r.StdoutTruncated || r.Warm == cold && os.Geteuid() == 0 {
					t.Fatalf("cold %v: %s by %+v, warm %v\n%.500s", cold, r.Status, r.Cause, r.Warm, r.Stderr)
				}
				same(t, fmt.Sprintf("cold %v", cold), canonical(r.Stdout, p.anyOrder), want)
			}
			code := p.code
			if err := living.WriteFile(t.Context(), "p.py", 0o644, int64(len(code)), strings.NewReader(code)); err != nil {
				t.Fatal(err)
			}
			done := must(living.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "p.py"}}, client.ExecOptions{}))(t)
			same(t, "in a living sandbox", canonical(done.Stdout, p.anyOrder), want)
		})
	}
}

// pooled is a way with interpreters that wait.
func pooled(t *testing.T) way {
	t.Helper()
	w := inProcess(t)
	must(w.SetPool(t.Context(), sandbox.PoolSpec{Name: "python", Language: "python", Min: 1, Limits: pooledLimits}))(t)
	return w
}

var pooledLimits = sandbox.Limits{MemoryBytes: 1 << 30, Processes: 128, OutputBytes: 64 << 20}

// outside runs a program with Python alone, into a pipe.
func outside(t *testing.T, code string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.py")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", file)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONUTF8=1"}
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &errors)
	}
	return strings.ToValidUTF8(out.String(), "\uFFFD")
}

// canonical sorts the lines where their order is chance.
func canonical(out string, anyOrder bool) string {
	if !anyOrder {
		return out
	}
	lines := strings.SplitAfter(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func same(t *testing.T, where, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s: %d bytes (%x), want %d (%x); they part at byte %d: %.80q, want %.80q", where,
		len(got), sha256.Sum256([]byte(got)), len(want), sha256.Sum256([]byte(want)), at, got[at:], want[at:])
}

// TestOutputOfThreadsAndForks wants every line once, and whole. Python into a pipe of
// its own loses lines of threads, and has a fork write again what its parent had not
// written yet.
func TestOutputOfThreadsAndForks(t *testing.T) {
	ledger.Check(t)
	w := pooled(t)
	for name, code := range map[string]string{
		"threads": `
import threading
def work(k):
    for i in range(5000): print(k * 10, i)
threads = [threading.Thread(target=work, args=(k,)) for k in 'abcd']
for t in threads: t.start()
for t in threads: t.join()
`,
		"forks": `
import os
for i in range(5000): print('a' * 10, i)
for k in 'bcd':
    if os.fork() == 0:
        for i in range(5000): print(k * 10, i)
        os._exit(0)
    os.wait()
`,
	} {
		var want strings.Builder
		for _, k := range "abcd" {
			for i := range 5000 {
				fmt.Fprintf(&want, "%s %d\n", strings.Repeat(string(k), 10), i)
			}
		}
		for _, cold := range []bool{true, false} {
			r := must(w.Run(t.Context(), sandbox.Spec{Language: "python", Code: code, Limits: pooledLimits, Cold: cold}, client.RunOptions{}))(t)
			same(t, fmt.Sprintf("%s, cold %v", name, cold), canonical(r.Stdout, true), canonical(want.String(), true))
		}
	}
}

// TestWhatHandlersRaiseIsTheProgramsOwn has alarms end loops that print as fast as they can.
// Once our own code, between two lines, took what a handler had raised for an error of its own.
func TestWhatHandlersRaiseIsTheProgramsOwn(t *testing.T) {
	ledger.Check(t)
	w := pooled(t)
	const code = `
import signal, sys, time
came = lost = 0
def late(*_):
    global came
    came += 1
    raise TimeoutError
signal.signal(signal.SIGALRM, late)
def until_it_comes(before):  # a function: Python 3.13 misses exceptions at the end of a loop in a try
    while came == before:
        for i in range(150): print(i)
        time.sleep(0)
for turn in range(250):
    before = came
    try:
        signal.setitimer(signal.ITIMER_REAL, .004 + turn * .00001)
        until_it_comes(before)
        lost += 1  # the alarm has come, and nobody heard of it
    except TimeoutError: pass
print("lost", lost, file=sys.stderr)
`
	for _, cold := range []bool{true, false} {
		r := must(w.Run(t.Context(), sandbox.Spec{Language: "python", Code: code, Limits: pooledLimits, Cold: cold}, client.RunOptions{}))(t)
		if r.Stderr != "lost 0\n" {
			t.Errorf("cold %v: %+v\n%s", cold, r.Cause, r.Stderr)
		}
	}
}

// TestOutputBeforeALimit wants all that was printed before a program was killed, and
// the same at other sudden ends.
func TestOutputBeforeALimit(t *testing.T) {
	ledger.Check(t)
	w := pooled(t)
	for name, c := range map[string]struct {
		end    string
		limits sandbox.Limits
		kind   sandbox.CauseKind
	}{
		"wall time": {"while True: time.sleep(1)", sandbox.Limits{WallTimeMS: 1500}, sandbox.CauseWallTime},
		"CPU time":  {"while True: pass", sandbox.Limits{CPUTimeMS: 1500}, sandbox.CauseCPUTime},
		"memory":    {"time.sleep(0.05)\nx = [b'x'] * (1 << 30)", sandbox.Limits{}, sandbox.CauseMemory},
		"killed":    {"os.kill(os.getpid(), 9)", sandbox.Limits{}, sandbox.CauseSignaled},
		"exit":      {"os._exit(3)", sandbox.Limits{}, sandbox.CauseExited},
		"exec":      {"os.execv('/bin/true', ['true'])", sandbox.Limits{}, sandbox.CauseExited},
	} {
		for lines, code := range map[int]string{
			3:      "print(0)\nprint(1)\nprint(2)\n",
			100000: "for i in range(100000): print(i)\n",
		} {
			t.Run(fmt.Sprintf("%s/%d", name, lines), func(t *testing.T) {
				for _, cold := range []bool{true, false} {
					c.limits.OutputBytes, c.limits.MemoryBytes, c.limits.Processes = 64<<20, 1<<30, 128
					spec := sandbox.Spec{Language: "python", Code: "import os, time\n" + code + c.end, Limits: c.limits, Cold: cold}
					r := must(w.Run(t.Context(), spec, client.RunOptions{}))(t)
					for r.Cause.Kind == sandbox.CauseWallTime && strings.Count(r.Stdout, "\n") < lines && spec.Limits.WallTimeMS < 60_000 {
						spec.Limits.WallTimeMS *= 4 // on a busy machine it had not come so far
						r = must(w.Run(t.Context(), spec, client.RunOptions{}))(t)
					}
					if r.Cause.Kind != c.kind {
						t.Fatalf("cold %v: %+v\n%.300s", cold, r.Cause, r.Stderr)
					}
					if got := strings.Count(r.Stdout, "\n"); got != lines || !strings.HasSuffix(r.Stdout, fmt.Sprintf("%d\n", lines-1)) {
						t.Errorf("cold %v: %d lines of %d", cold, got, lines)
					}
				}
			})
		}
	}
}

// TestOutputComesInTime wants lines while their program goes on: it is the test that ends
// it when they have come, not a limit.
func TestOutputComesInTime(t *testing.T) {
	ledger.Check(t)
	w := pooled(t)
	for lines, code := range map[int]string{1: "print('a')\n", 100000: "for i in range(100000): print(i)\n"} {
		for _, cold := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			seen := &lineCounter{left: lines, enough: cancel}
			spec := sandbox.Spec{Language: "python", Code: "import time\n" + code + "while True: time.sleep(60)", Cold: cold, Limits: pooledLimits}
			r, err := w.Run(ctx, spec, client.RunOptions{Stdout: seen})
			if seen.left > 0 || err != nil || r.Cause.Kind != sandbox.CauseCancelled {
				t.Errorf("cold %v: %d of %d lines did not come in time: %+v, %v", cold, seen.left, lines, r, err)
			}
			cancel()
		}
	}
}

// lineCounter calls enough when so many lines have come.
type lineCounter struct {
	left   int
	enough func()
}

func (c *lineCounter) Write(p []byte) (int, error) {
	if c.left -= bytes.Count(p, []byte("\n")); c.left <= 0 {
		c.enough()
	}
	return len(p), nil
}

// TestExactOutput wants the bytes, on request, and how those of both streams follow
// each other.
func TestExactOutput(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		script := "i=0; while [ $i -lt 50 ]; do printf '\\377out %d\\n' $i; printf '\\376err\\n' >&2; i=$((i+1)); done"
		stderr := strings.Repeat("\xfeerr\n", 50)
		var stdout strings.Builder
		for i := range 50 {
			fmt.Fprintf(&stdout, "\xffout %d\n", i)
		}
		living := w.create(t, sandbox.Create{})
		for _, asked := range []bool{true, false} {
			r := must(w.Run(t.Context(), sandbox.Spec{Language: "sh", Code: script, OutputBase64: asked}, client.RunOptions{}))(t)
			exact(t, r.ExactOutput, asked, stdout.String(), stderr)
			same(t, "text", r.Stdout, strings.ToValidUTF8(stdout.String(), "\uFFFD"))
			p := must(living.Exec(t.Context(), sandbox.Command{Shell: script, OutputBase64: asked}, client.ExecOptions{}))(t)
			exact(t, p.ExactOutput, asked, stdout.String(), stderr)
		}
	})
}

func exact(t *testing.T, got sandbox.ExactOutput, asked bool, stdout, stderr string) {
	t.Helper()
	if !asked {
		stdout, stderr = "", ""
	}
	same(t, "stdout", string(got.StdoutRaw), stdout)
	same(t, "stderr", string(got.StderrRaw), stderr)
	sums := map[string]int64{}
	last := ""
	for _, p := range got.OutputOrder {
		if p.Bytes < 1 || p.Stream == last {
			t.Errorf("piece %+v after %q", p, last)
		}
		sums[p.Stream] += p.Bytes
		last = p.Stream
	}
	if asked && (sums["stdout"] != int64(len(stdout)) || sums["stderr"] != int64(len(stderr)) || len(sums) != 2) {
		t.Errorf("the order has %v of %d and %d bytes", sums, len(stdout), len(stderr))
	}
}

// What was written to stdout before something was written to stderr is told before it,
// also of a moment: nothing on the way lets one overtake the other. It was so in half
// of the cases.
func TestStdoutComesBeforeWhatFollowsIt(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		b := w.create(t, sandbox.Create{})
		for range 30 {
			p := must(b.Exec(t.Context(), sandbox.Command{Shell: "echo out; echo err >&2"}, client.ExecOptions{}))(t)
			if len(p.OutputOrder) != 2 || p.OutputOrder[0].Stream != "stdout" {
				t.Fatalf("%+v", p.OutputOrder)
			}
		}
	})
}

// Who reads what is kept is told that the beginning is missing, and gets what who asks
// for the process gets.
func TestOutputThatIsCutSaysSo(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		b := w.create(t, sandbox.Create{})
		p := w.start(t, b, sandbox.Command{Shell: "echo 0123456789abcdef; echo e >&2", OutputBytes: 8})
		waited := must(p.Wait(t.Context()))(t)
		var out bytes.Buffer
		read := must(p.Output(t.Context(), client.OutputOptions{Stdout: &out, StdoutOffset: -1, StderrOffset: -1}))(t)
		if out.String() != "9abcdef\n" || !read.StdoutTruncated || read.StderrTruncated || read.StdoutBytes != 17 {
			t.Errorf("read %q: %+v", out.String(), read)
		}
		for _, p := range []sandbox.Process{waited, must(p.Info(t.Context()))(t)} {
			if p.Stdout != "9abcdef\n" || !p.StdoutTruncated || p.StdoutBytes != 17 || p.Stderr != "e\n" || p.StderrTruncated {
				t.Errorf("%+v", p)
			}
		}
	})
}
