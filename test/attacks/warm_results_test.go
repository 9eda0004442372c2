//go:build linux

package attacks

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// warmLimits are those of a pool. Limits that the engine keeps are the runs' own.
var warmLimits = sandbox.Limits{MemoryBytes: 96 << 20, CPUs: 1, Processes: 24, DiskBytes: 8 << 20, Inodes: 300}

// sameEitherWay are programs that must have one result, whether their interpreter
// was started for them or forked.
var sameEitherWay = []struct {
	name, code string
	set        func(*sandbox.Spec)
}{
	{"value", "x = 6\nx * 7\n", nil},
	{"exit", "import sys; sys.exit(3)", nil},
	{"exit with text", "import sys; sys.exit('so long')", nil},
	{"exit without", "import sys; sys.exit()", nil},
	{"exit with a large number", "import sys; sys.exit(1 << 70)", nil},
	{"exit with a number of its own", "import sys\nclass N(int):\n    def __and__(self, other): return 7\nsys.exit(N(5))", nil},
	{"exit with text and no stderr", "import sys; sys.stderr = None; sys.exit('text')", nil},
	{"exit with what has no text", "import sys\nclass A:\n    def __str__(self): 1 / 0\nsys.exit(A())", nil},
	{"exit with text and closed output", "import sys; sys.stdout.close(); sys.exit('text')", nil},
	{"exit at once", "import os; print('never seen?'); os._exit(5)", nil},
	{"exit in a thread", "import threading, os\nthreading.Thread(target=lambda: os._exit(6)).start()\nimport time; time.sleep(5)", nil},
	{"raise", "def f():\n    raise ValueError('a')\nf()\n", nil},
	{"raise in a chain", "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('b') from e\n", nil},
	{"syntax", "print('a'\nprint(1)\n", nil},
	{"module missing", "import nothere_at_all\n", nil},
	{"interrupt", "raise KeyboardInterrupt", nil},
	{"interrupt while threads end", "import threading, time, os\nos.dup2(os.open('/dev/null', 1), 2)\nthreading.Thread(target=lambda: (time.sleep(.1), os.kill(os.getpid(), 2), time.sleep(.1), print('late'))).start()", nil},
	{"interrupt of its own", "class I(KeyboardInterrupt): pass\nraise I", nil},
	{"recursion", "def f(): f()\ntry: f()\nexcept RecursionError as e: print(e)", nil},
	{"abort", "import os; os.abort()", nil},
	{"crash", "import ctypes; ctypes.string_at(0)", nil},
	{"SIGKILL", "import os; os.kill(os.getpid(), 9)", nil},
	{"SIGTERM", "import os; os.kill(os.getpid(), 15)", nil},
	{"SIGPIPE", "import signal, os; signal.signal(13, signal.SIG_DFL); r, w = os.pipe(); os.close(r); os.write(w, b'x')", nil},
	{"memory", "x = []\nwhile True: x.append(bytearray(1 << 20))", nil},
	{"memory in a child", "import os\nif os.fork() == 0:\n    x = []\n    while True: x.append(bytearray(1 << 20))\nos.wait(); import time; time.sleep(5)", nil},
	{"memory error", "try: bytearray(1 << 62)\nexcept MemoryError: print('no')", nil},
	{"wall time", "import time; time.sleep(60)", func(s *sandbox.Spec) { s.Limits.WallTimeMS = 300 }},
	{"wall time, stopped", "import os; os.kill(os.getpid(), 19)", func(s *sandbox.Spec) { s.Limits.WallTimeMS = 300 }},
	{"CPU time", "while True: pass", func(s *sandbox.Spec) { s.Limits.CPUTimeMS = 300 }},
	{"CPU time of a child", "import os\nif os.fork() == 0:\n    while True: pass\nos.wait()", func(s *sandbox.Spec) { s.Limits.CPUTimeMS = 300 }},
	{"processes", "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(60)", nil},
	{"threads", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", nil},
	{"disk", "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 16))", nil},
	{"inodes", "import os\ntry:\n    for i in range(1000): open(str(i), 'w')\nexcept OSError as e: os._exit(e.errno)", nil},
	{"flood", "import os\nwhile True: os.write(1, b'0123456789abcde\\n' * 4096)", func(s *sandbox.Spec) { s.Limits.OutputBytes = 1000 }},
	{"much output", "print('x' * 100000)\nimport sys; print('y' * 3000, file=sys.stderr)", func(s *sandbox.Spec) { s.Limits.OutputBytes = 5000 }},
	{"a call that ends it", "import ctypes; print(1, flush=True); ctypes.CDLL(None).syscall(%reboot)", nil},
	{"a call that is refused", "import ctypes; print(ctypes.CDLL(None).syscall(%mount, 0, 0, 0, 0, 0))", nil},
	{"output without a line's end", "print('a', end='')", nil},
	{"bytes that are no text", "import os; os.write(1, b'\\xff\\x00\\x1b[2J'); os.write(2, b'\\xfe')", nil},
	{"closed output", "import sys; print('before'); sys.stdout.close(); sys.stderr.write('after')", nil},
	{"no output", "import sys; del sys.stdout, sys.stderr", nil},
	{"no builtins", "import builtins\nprint(1)\nfor name in ('sorted', 'isinstance', 'getattr', 'print', 'type'): delattr(builtins, name)", nil},
	{"streams by their names", "for i in (1, 2):\n    for name in (f'/proc/self/fd/{i}', ('/dev/stdout', '/dev/stderr')[i - 1]):\n        with open(name, 'w') as f: f.write(name)\nprint(open('/dev/stdin').read())", nil},
	{"closed descriptors", "import os; os.close(1); os.close(2); os.close(0)", nil},
	{"output at the end", "import atexit, sys; atexit.register(print, 'bye'); print('hi'); sys.stderr.write('e')", nil},
	{"a thread that goes on", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start(); print('first')", nil},
	{"a process that holds the output", "import subprocess; subprocess.Popen(['/bin/sleep', '30']); print('gone')", nil},
	{"a daemon", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(30)\n    os._exit(0)\nos.wait(); print('gone')", nil},
	{"stdin", "import sys; print(sys.stdin.read().upper(), sys.stdin.isatty(), sys.stdin.seekable())", func(s *sandbox.Spec) { s.Stdin = "text\n" }},
	{"stdin by lines", "for n in range(2): print(input('? '))", func(s *sandbox.Spec) { s.Stdin = "a\nb\nc\n" }},
	{"stdin that nobody reads", "print(1)", func(s *sandbox.Spec) { s.Stdin = strings.Repeat("x", 1<<20) }},
	{"end of stdin", "input()", nil},
	{"arguments", "import sys; print(sys.argv, __name__, __file__, sys.path[0])", func(s *sandbox.Spec) { s.Args = []string{"-c", "ä", ""} }},
	{"variables", "import os; print(sorted(os.environ.items()))", func(s *sandbox.Spec) { s.Env = map[string]string{"A": "b\n", "HOME": "/tmp"} }},
	{"time zone", "import time, datetime; print(time.tzname, time.timezone, datetime.datetime.fromtimestamp(0))", func(s *sandbox.Spec) { s.Env = map[string]string{"TZ": "America/New_York"} }},
	{"files", "import os; open('sub/out.txt', 'w').write(open('in.txt').read()); print(sorted(os.listdir()))", func(s *sandbox.Spec) {
		s.Files = []sandbox.File{{Path: "in.txt", Content: "in"}, {Path: "sub/x", Content: "y"}}
		s.Artifacts = []string{"**/*.txt"}
	}},
	{"a module beside it", "import helper; print(helper.f())", func(s *sandbox.Spec) {
		s.Files = []sandbox.File{{Path: "helper.py", Content: "def f(): return __name__, __file__\n"}}
	}},
	{"imports that are not allowed", "import socket", func(s *sandbox.Spec) { s.AllowedImports = []string{"json"} }},
	{"imports that are", "import json; print(json.dumps(1))", func(s *sandbox.Spec) { s.AllowedImports = []string{"json"} }},
	{"warnings", "import warnings; warnings.warn('w'); '\\d'", nil},
	{"children", "import subprocess; print(subprocess.run(['/bin/sh', '-c', 'echo $0 $PPID | wc -w; ulimit -n; umask; pwd'], capture_output=True))", nil},
	{"pools of processes", "import multiprocessing as m\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))", nil},
	{"spawned processes", "import multiprocessing as m\ndef f(q): q.put(6 * 7)\nif __name__ == '__main__':\n    m.set_start_method('spawn'); q = m.Queue(); p = m.Process(target=f, args=(q,)); p.start(); print(q.get(timeout=9)); p.join()\n    q.close(); q.join_thread(); del p, q\n    import gc, multiprocessing.resource_tracker as r; gc.collect(); r._resource_tracker._stop()  # which would hold the output for a moment", nil},
	{"asyncio", "import asyncio\nasync def f(): await asyncio.sleep(.01); return await asyncio.to_thread(lambda: 7)\nprint(asyncio.run(f()))", nil},
	{"signals", "import signal, os, time\nsignal.signal(14, lambda *a: print('alarm')); signal.setitimer(0, .05); time.sleep(.2); print(signal.getsignal(17), signal.getsignal(2))", nil},
	{"pickles", "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__)", nil},
	{"itself", "import inspect\ndef f(): pass\nprint(inspect.getsource(f), open(__file__).readline())", nil},
	{"frames", "import traceback; print(len(traceback.extract_stack()) < 6)", nil},
	{"garbage", "import gc\nclass A:\n    def __del__(self): print('deleted')\na = A(); a.me = a; del a; gc.collect(); b = A()", nil},
	{"callbacks of C", "import ctypes\nmake = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)\nall = [make(lambda x, n=n: x + n) for n in range(2000)]\nprint(sum(f(1) for f in all))", nil},
	{"interpreter", "import sys; print(sys.executable, sys.flags, sys.version, sys.prefix, sys.stdout.encoding)", nil},
}

// A program's result tells nothing of how its interpreter came to be, but in the
// fields that are there for it: causes, limits, output, values and files are the same.
func TestWarmResultsAreCold(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's interpreters are not forked")
	}
	ledger.Check(t)
	a := newArena(t, "")
	if err := a.engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.engine.SetPool(t.Context(), sandbox.PoolSpec{Name: "py", Language: "python", Min: 2, Limits: warmLimits}); err != nil {
		t.Fatal(err)
	}
	waitFull(t, a.engine)
	for _, test := range sameEitherWay {
		t.Run(test.name, func(t *testing.T) {
			spec := sandbox.Spec{Language: "python", Code: withNumbers(test.code), Limits: warmLimits, Artifacts: []string{"*.txt"}}
			if test.set != nil {
				test.set(&spec)
			}
			waitFull(t, a.engine)
			warm := outcome(t, a.engine, spec, true)
			spec.Cold = true
			if diff := cmp.Diff(outcome(t, a.engine, spec, false), warm); diff != "" {
				t.Errorf("a forked run (+) is not what a cold one is (-):\n%s", diff)
			}
		})
	}
}

func withNumbers(code string) string {
	return regexp.MustCompile(`%(reboot|mount)`).ReplaceAllStringFunc(code, func(s string) string {
		return fmt.Sprint(map[string]int{"%reboot": unix.SYS_REBOOT, "%mount": unix.SYS_MOUNT}[s])
	})
}

// waitFull waits until forks wait in the pool.
func waitFull(t *testing.T, e *engine.Engine) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		p := e.Pools()[0]
		if p.Available >= p.Min && p.Interpreters == "forked" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pool is not filled: %+v, %v", p, p.Error)
		}
	}
}

// outcome runs a program and returns what must be the same.
func outcome(t *testing.T, e *engine.Engine, spec sandbox.Spec, warm bool) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := e.Run(ctx, runs.Request{Spec: spec, Artifact: func(_ sandbox.Artifact, content io.Reader) error {
		_, err := io.Copy(io.Discard, content)
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := *got
	if r.Warm != warm {
		t.Errorf("warm is %t", r.Warm)
	}
	r.ID, r.Warm, r.Usage, r.Timings, r.Cause.Observed = "", false, sandbox.Usage{}, sandbox.Timings{}, 0
	r.Cause.Evidence = regexp.MustCompile(`\d+`).ReplaceAllString(r.Cause.Evidence, "N")
	r.OutputOrder = nil                   // of two pipes, which is read first is chance
	if r.Status == sandbox.StatusKilled { // how far it came is chance
		r.StdoutBytes, r.StderrBytes = 0, 0
	}
	if r.Cause.Kind == sandbox.CauseOutput { // what it advises is more than was seen
		fix, _ := r.Cause.Advice.Find(sandbox.FixSet)
		if fix.Name != "limits.output_bytes" || !strings.Contains(r.Cause.Hint, string(fix.Value)) {
			t.Errorf("the fix is %+v, the hint %q", fix, r.Cause.Hint)
		}
		r.Cause = r.Cause.WithAdvice(nil)
	}
	r.Stdout = regexp.MustCompile(`0x[0-9a-f]+|\(pid=\d+\)`).ReplaceAllString(r.Stdout, "N")
	fresh := func(s string) bool { return s == sandbox.FeatureASLR }
	r.Isolation.Enforced = slices.DeleteFunc(slices.Clone(r.Isolation.Enforced), fresh)
	gaps := map[string]sandbox.Gap{}
	for _, g := range r.Isolation.NotEnforced {
		gaps[g.What] = g
	}
	if _, said := gaps[sandbox.FeatureASLR]; said != warm {
		t.Errorf("that addresses are not its own is said: %t", said)
	}
	delete(gaps, sandbox.FeatureASLR)
	r.Isolation.NotEnforced = nil
	for _, what := range slices.Sorted(maps.Keys(gaps)) {
		r.Isolation.NotEnforced = append(r.Isolation.NotEnforced, gaps[what])
	}
	return r
}
