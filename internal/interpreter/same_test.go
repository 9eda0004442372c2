package interpreter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/interpreter"
)

// samePrograms must do the same under the harness as without it, to the byte.
// A file starts as main.py, unless its name says otherwise.
var samePrograms = []struct {
	name, source, stdin string
	files               map[string]string
	args                []string
}{
	{name: "names", source: "import sys\nprint(__name__, __file__, sys.argv, sys.path, __doc__, __package__, __spec__, type(__loader__), __annotations__, sorted(globals()), list(globals()))\nprint(sys.orig_argv[1:])\nprint(sys.modules['__main__'].__dict__ is globals())", args: []string{"a b", "--imports=x", "--no-results", ""}},
	{name: "loaded modules", source: "import sys\nprint(sorted(sys.modules))"},
	{name: "docstring", source: "\"\"\"the\ndoc\"\"\"\nprint(__doc__)"},
	{name: "only a docstring", source: "'only'"},
	{name: "docstring at exit", source: "'only'\nimport atexit; atexit.register(lambda: print(__doc__))\n"},
	{name: "empty", source: ""},
	{name: "comments", source: "# nothing\n\n   # here\n"},
	{name: "last expression", source: "x = 3\nx * 2\n"},
	{name: "last expression over lines", source: "x = [\n  1,\n  2,\n]\n(\n  x\n)  # done\n\n# end\n"},
	{name: "last line in a string", source: "x = '''\nprint(1)\n1/0\n'''\nprint(x)\ny = '''\n7\n'''"},
	{name: "continued line", source: "x = 1 + \\\n2\nprint(x)\nprint(3), \\\n4"},
	{name: "two statements in a line", source: "x = 1; print(x); x"},
	{name: "carriage returns", source: "print(1)\r\nx = 2\r\nx\r\n"},
	{name: "no newline at the end", source: "print(1)\nprint(2)\n1 + 1"},
	{name: "failing last expression", source: "def f():\n    return 1 / 0\n\n\nf()\n"},
	{name: "failing long expression", source: "a = 1\n(a +\n  {}['x'] +\n 3)\n"},
	{name: "chained", source: "try:\n    1/0\nexcept ZeroDivisionError as e:\n    try:\n        {}['k']\n    except KeyError as k:\n        raise RuntimeError('both') from k\n"},
	{name: "group", source: "import sys\nif sys.version_info >= (3, 11):\n    raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\nraise ValueError(1)"},
	{name: "in a module", source: "import helper\nhelper.f(0)", files: map[string]string{"helper.py": "def f(x):\n    return 1 / x\n"}},
	{name: "message of several lines", source: "raise ValueError('a\\nb\\udc80')"},
	{name: "exception without a message", source: "class E(BaseException): pass\nraise E"},
	{name: "exception that cannot be shown", source: "class E(Exception):\n    def __str__(self): raise TypeError('no')\nraise E"},
	{name: "notes", source: "e = ValueError('x')\nif hasattr(e, 'add_note'): e.add_note('a note')\nraise e"},
	{name: "exit 3", source: "import sys\nprint('out')\nsys.exit(3)"},
	{name: "exit with text", source: "import sys\nsys.exit('a word')"},
	{name: "exit with nothing", source: "import sys\nsys.exit()"},
	{name: "exit with an object", source: "raise SystemExit([1, 2])"},
	{name: "exit with a large number", source: "raise SystemExit(2**40)"},
	{name: "exit in the last expression", source: "import sys\nsys.exit(5)\n'never'"},
	{name: "os._exit", source: "import os\nprint('out', flush=True)\nos._exit(7)"},
	{name: "abort", source: "import os\nprint('out', flush=True)\nos.abort()"},
	{name: "killed", source: "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"},
	{name: "interrupted", source: "def f():\n    raise KeyboardInterrupt\nf()"},
	{name: "interrupt of its own", source: "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)"},
	{name: "syntax error", source: "print(1)\ndef f( :\n"},
	{name: "error of the compiler", source: "print(1)\nreturn 5\n"},
	{name: "break outside a loop", source: "print(1)\nif 1:\n    break\n"},
	{name: "indentation", source: "if 1:\nprint(2)\n"},
	{name: "open string", source: "x = '''abc\n"},
	{name: "tabs", source: "if 1:\n\tx = 1\n        y = 2\n"},
	{name: "not a number", source: "x = 1__0\n"},
	{name: "not UTF-8", source: "x = '\xff'\nprint(1)\n"},
	{name: "zero bytes", source: "print(1)\x00\nprint(2)\n"},
	{name: "latin-1", source: "# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n'\xe9'\n"},
	{name: "unknown encoding", source: "# coding: nothing\nprint(1)\n"},
	{name: "utf-8 by name", source: "# coding: utf-8\nprint(ascii('é'))\n'é'\n"},
	{name: "byte order mark", source: "\ufeffprint(1)\n2"},
	{name: "future annotations", source: "from __future__ import annotations\ndef f(x: nothing) -> nowhere: pass\nprint(f.__annotations__)\n(lambda: 1)()"},
	{name: "future in the middle", source: "print(1)\nfrom __future__ import annotations\n"},
	{name: "annotations", source: "x: int = 3\nprint(__annotations__)\nx"},
	{name: "syntax warning", source: "x = 5\nif x is 5: print('yes')\nprint('\\d')\nx\n"},
	{name: "warning before a syntax error", source: "x = 5\nprint(x is 5)\ndef f( :\n"},
	{name: "warnings", source: "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)\n"},
	{name: "stdin", source: "import sys\nprint(input())\nprint(sys.stdin.read())\n", stdin: "first\nrest ☃\n"},
	{name: "stdin from the last expression", source: "int(input())", stdin: "12\n"},
	{name: "exit functions", source: "import atexit\natexit.register(print, 'bye')\nprint('hi')\n5"},
	{name: "exit functions after a failure", source: "import atexit, sys\natexit.register(lambda: print('bye', sys.last_type.__name__, sys.last_traceback.tb_frame.f_code.co_name, sys.last_value.__traceback__ is sys.last_traceback))\n1/0"},
	{name: "failing exit function", source: "import atexit\natexit.register(lambda: 1/0)\n"},
	{name: "threads alive at the end", source: "import threading, time\ndef f():\n    time.sleep(0.2)\n    print('late')\nthreading.Thread(target=f).start()\nprint('early')\n7"},
	{name: "daemon", source: "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint('early')"},
	{name: "thread that fails", source: "import threading\nt = threading.Thread(target=lambda: 1/0, name='T')\nt.start()\nt.join()\nprint(threading.current_thread() is threading.main_thread())"},
	{name: "fork", source: "import os, sys\nprint('once', flush=True)\npid = os.fork()\nif pid == 0:\n    print('child', flush=True)\nelse:\n    print(os.waitpid(pid, 0)[1], flush=True)\n9"},
	{name: "fork that fails", source: "import os\npid = os.fork()\nif pid == 0: 1/0\nprint(os.waitpid(pid, 0)[1] >> 8)\n"},
	{name: "pickle", source: "import pickle\nclass A:\n    x = 1\n    def f(self): return 2\nb = pickle.loads(pickle.dumps(A()))\nprint(b.f(), type(b) is A, pickle.dumps(A)[:40])\nb.x"},
	{name: "multiprocessing fork", source: "import multiprocessing as m\ndef f(x): return x * 2\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2, 3]))\n"},
	{name: "multiprocessing spawn", source: "import multiprocessing as m\ndef f(x): return x * 2\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1, 2, 3]))\n"},
	{name: "process that fails", source: "import multiprocessing as m\ndef f(): raise SystemExit(4)\nif __name__ == '__main__':\n    p = m.get_context('fork').Process(target=f); p.start(); p.join(); print(p.exitcode)\n"},
	{name: "inspect", source: "import inspect, sys\ndef f():\n    return 1  # one\nprint(inspect.getsource(f), inspect.getsourcefile(f), inspect.getmodule(f), f.__module__)\nprint(inspect.getsource(sys.modules['__main__']))"},
	{name: "dataclass", source: "from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int\n    y: 'list[int]' = field(default_factory=list)\nprint(P(1), P.__module__)\nimport typing\nprint(typing.get_type_hints(P))\nP(2)"},
	{name: "enum", source: "from enum import Enum\nclass C(Enum):\n    A = 1\nprint(C.A, repr(C.A))\nC.A"},
	{name: "star import", source: "from math import *\nprint(floor(pi))\nsqrt(4)"},
	{name: "import of itself", source: "import main\nprint(main.__name__, __name__)"},
	{name: "exec and eval", source: "exec('y = 1')\nprint(eval('y + 1'))\ntry:\n    eval('1 +')\nexcept SyntaxError as e: print(e)\nexec('1/0')"},
	{name: "own builtins", source: "def open(*a): raise OSError('mine')\nlen = print = sorted = type = None\nopen\n"},
	{name: "builtins gone", source: "import builtins, sys\nsys.stdout.write('out\\n')\nfor n in ('open', 'len', 'exec', 'eval', 'getattr', 'isinstance', 'print'): delattr(builtins, n)\n1"},
	{name: "streams closed", source: "import sys\nprint('out')\nsys.stdout.close()\nsys.stderr.close()\n3"},
	{name: "streams None", source: "import sys\nprint('out', flush=True)\nsys.stdout = sys.stderr = None\n3"},
	{name: "own stdout", source: "import sys, io\nsys.stdout = io.StringIO()\nprint('lost')\nsys.stderr.write('kept\\n')\n3"},
	{name: "stdout kept elsewhere", source: "import sys, io, json\nreal = sys.stdout\nsys.stdout = io.StringIO()\nprint('lost')\njson.dump({'kept': 1}, real)\n"},
	{name: "bytes kept elsewhere", source: "import sys\nout = sys.stdout.buffer\nsys.stdout = sys.stderr\nfor i in range(3000): out.write(b'%06d\\n' % i)\n"},
	{name: "stdout kept by nobody", source: "import sys\nsys.stdout.write('kept')\nsys.stdout = sys.__stdout__ = None\n"},
	{name: "stdout detached", source: "import sys\nb = sys.stdout.detach()\nsys.stdout = sys.__stdout__ = None\nb.write(b'kept')\n"},
	{name: "stdout at the end of its last user", source: "import sys\nreal, sys.stdout = sys.stdout, None\nclass A:\n    def __del__(self): real.write('kept')\na = A()\n"},
	{name: "exit function with a stdout kept elsewhere", source: "import sys, atexit\nreal, sys.stdout = sys.stdout, None\natexit.register(lambda: real.write('kept'))\n"},
	{name: "own excepthook", source: "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t.__name__, v, tb.tb_lineno, tb.tb_next)\n1/0"},
	{name: "failing excepthook", source: "import sys\ndef hook(t, v, tb): {}['h']\nsys.excepthook = hook\n1/0"},
	{name: "excepthook that exits", source: "import sys\nsys.excepthook = lambda *a: sys.exit(9)\n1/0"},
	{name: "no excepthook", source: "import sys\ndel sys.excepthook\n1/0"},
	{name: "own displayhook", source: "import sys\nsys.displayhook = print\n3"},
	{name: "profile and trace", source: "import sys\nprint(sys.getprofile(), sys.gettrace())\nn = 0\ndef p(*a):\n    global n\n    n += 1\nsys.setprofile(p)\nabs(1)\nsys.setprofile(None)\nprint(n)"},
	{name: "value that prints", source: "class A:\n    def __repr__(self):\n        import sys\n        print('repr'); sys.stderr.write('err\\n'); return 'A'\nA()"},
	{name: "value that fails", source: "class A:\n    def __repr__(self): raise ValueError('no')\nA()"},
	{name: "value that exits", source: "class A:\n    def __repr__(self): raise SystemExit(3)\nA()"},
	{name: "value that answers to everything", source: "from unittest.mock import MagicMock\nMagicMock()"},
	{name: "value of a class", source: "class A:\n    def _repr_html_(self): return 1\nA"},
	{name: "module gone", source: "import sys\ndel sys.modules['__main__']\nprint(1)\n2"},
	{name: "directory changed", source: "import os\nos.chdir('/')\nprint(1)\n2"},
	{name: "own file gone", source: "import os\nos.remove(__file__)\n1/0"},
	{name: "json", source: "import json\nprint(json.dumps({'a': [1, None]}))\njson.loads('[1]')"},
	{name: "time", source: "import time, datetime\nprint(datetime.datetime.strptime('2020-01-02', '%Y-%m-%d').date(), time.strptime('3', '%d').tm_mday)\n"},
	{name: "nested function error", source: "def a(): b()\ndef b(): c()\ndef c(): raise LookupError('deep')\nif __name__ == '__main__':\n    a()\n"},
	{name: "generator", source: "def g():\n    yield 1\n    raise OSError(2, 'gone', 'f')\nfor x in g(): print(x)\n"},
	{name: "asyncio", source: "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\nprint(asyncio.run(f()))\nasyncio.run(f())"},
	{name: "coroutine never awaited", source: "async def f(): pass\nf()\n"},
	{name: "subprocess", source: "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(2); 1/0'], capture_output=True, text=True))\n"},
	{name: "finalizers", source: "class A:\n    def __del__(self): print('gone')\na = A()\nprint('end')\n"},
	{name: "logging", source: "import logging\nlogging.basicConfig()\nlogging.warning('w')\ntry: 1/0\nexcept Exception: logging.exception('e')\n"},
	{name: "print_exc", source: "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()\n"},
	{name: "doctest", source: "def f():\n    \"\"\"\n    >>> f()\n    2\n    \"\"\"\n    return 1\nimport doctest\nprint(doctest.testmod().failed)\n"},
	{name: "argparse", source: "import argparse\np = argparse.ArgumentParser()\np.add_argument('n', type=int)\nprint(p.parse_args().n)\n", args: []string{"x"}},
	{name: "end of stdin", source: "print(input())\n"},
	{name: "text that cannot be printed", source: "print('\\udc80')\n"},
	{name: "pool of processes", source: "from concurrent.futures import ProcessPoolExecutor\ndef f(x): return x + 1\nif __name__ == '__main__':\n    with ProcessPoolExecutor(2) as p: print(list(p.map(f, [1, 2])))\n"},
	{name: "timeit", source: "import timeit\ndef f(): return 1\nprint(timeit.timeit('f()', 'from __main__ import f', number=3) >= 0)\n"},
	{name: "run again", source: "import runpy, sys\nif len(sys.argv) == 1:\n    sys.argv.append('again')\n    print(sorted(runpy.run_path(__file__, run_name='other'))[:3])\nprint(__name__)\n"},
	{name: "signal handler", source: "import os, signal\nsignal.signal(signal.SIGUSR1, lambda n, frame: print(n == signal.SIGUSR1, frame.f_code.co_filename == __file__))\nos.kill(os.getpid(), signal.SIGUSR1)\n"},
	{name: "weak references", source: "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\na\n"},
	{name: "value that is dropped", source: "class A:\n    def __del__(self): print('dropped')\nimport atexit\natexit.register(print, 'exit')\nA()\n"},
	{name: "many arguments", source: "import sys\nprint(len(sys.argv), sys.argv[-1])\n", args: strings.Fields(strings.Repeat("x ", 2000))},
	{name: "unraisable", source: "import threading, sys\nclass A:\n    def __del__(self): 1/0\nA()\n"},
	{name: "profile to the end", source: "import cProfile, atexit, pstats, io\np = cProfile.Profile()\np.enable()\ndef f(): return 1\n@atexit.register\ndef end():\n    p.disable()\n    s = io.StringIO()\n    pstats.Stats(p, stream=s).print_stats('main.py')\n    print('(f)' in s.getvalue())\nf()\n"},
	{name: "file below", source: "main=sub", files: map[string]string{"sub/prog.py": "import sys, side\nprint(__file__, sys.argv, sys.path[0], side.x)\nside.x", "sub/side.py": "x = 4\n"}},
	{name: "file not there", source: "main=nothere"},
	{name: "directory", source: "main=dir", files: map[string]string{"dir/__main__.py": "import sys\nprint(__name__, sys.argv)\n1/0"}},
}

// address is where an object lies, which is chance.
var address = regexp.MustCompile(`0x[0-9a-f]+`)

// mains are the names of programs that are not main.py.
var mains = map[string]string{"main=sub": "sub/prog.py", "main=nothere": "nothere.py", "main=dir": "dir"}

// TestTheSameWithAndWithoutTheHarness runs every program both ways.
func TestTheSameWithAndWithoutTheHarness(t *testing.T) {
	for _, python := range pythons(t) {
		for _, p := range samePrograms {
			t.Run(filepath.Base(python)+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				dir, harness := t.TempDir(), install(t)
				main := mains[p.source]
				prepare := func() {
					if main == "" {
						write(t, filepath.Join(dir, "main.py"), p.source)
					}
					for name, content := range p.files {
						write(t, filepath.Join(dir, name), content)
					}
				}
				file := main
				if file == "" {
					file = "main.py"
				}
				prepare()
				bare := start(t, dir, p.stdin, append([]string{python, file}, p.args...)...)
				prepare()
				ours := start(t, dir, p.stdin, append([]string{python, harness, file}, p.args...)...)
				if ours != bare {
					t.Errorf("with the harness:\n%+v\nwithout it:\n%+v", ours, bare)
				}
				if slices.Contains(notWarm, p.name) {
					return
				}
				prepare()
				ours = startWarm(t, dir, python, filepath.Dir(harness), p.stdin, append([]string{file}, p.args...))
				if ours != bare {
					t.Errorf("in an interpreter that waited:\n%+v\nstarted for it:\n%+v", ours, bare)
				}
			})
		}
	}
}

// TestExitWaitsForWhatIsBeingWritten has a program leave while our thread writes what
// the program has printed, into a pipe that is full.
func TestExitWaitsForWhatIsBeingWritten(t *testing.T) {
	const last = 6000
	dir, harness := t.TempDir(), install(t)
	const quick = "LINES, QUICK, HURRY = 100, 0.005,"
	source, _ := interpreter.File(interpreter.PythonHarness)
	slow := bytes.Replace(source, []byte(quick), []byte("LINES, QUICK, HURRY = 100, 1e9,"), 1)
	if bytes.Equal(slow, source) {
		t.Fatalf("the harness does not say %s", quick)
	}
	write(t, harness, string(slow)) // however slow the machine is
	write(t, filepath.Join(dir, "main.py"), fmt.Sprintf(`
import os, time
while os._exit.__name__ == "_exit": print(1)  # until it gets full buffers
print("x" * %d)
end = time.monotonic() + 0.1
while time.monotonic() < end: pass
os._exit(3)
`, last))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", harness, "main.py") //nolint:gosec // written above
	cmd.Dir, cmd.Stdout, cmd.Env = dir, w, []string{"PYTHONDONTWRITEBYTECODE=1"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	var got []byte
	for !bytes.Contains(got, []byte("x")) {
		b := make([]byte, 512)
		n, err := r.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, b[:n]...)
	}
	time.Sleep(300 * time.Millisecond) // for a program that does not wait to be gone
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if n := bytes.Count(append(got, rest...), []byte("x")); n != last || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%d bytes of %d, exit status %d", n, last, cmd.ProcessState.ExitCode())
	}
}

// notWarm are the programs that see that their interpreter has waited for them:
// it has loaded more, and it ends without taking everything apart.
var notWarm = []string{"loaded modules"}

// startWarm has the program run by an interpreter that waits for it.
func startWarm(t *testing.T, dir, python, harness, stdin string, argv []string) outcome {
	t.Helper()
	warm, err := os.ReadFile("../zygote/inside/pinfold_warm.py")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(harness, "pinfold_warm.py"), string(warm))
	job, err := json.Marshal(map[string]any{"file": argv[0], "args": argv[1:], "env": nil, "allowed_imports": nil, "results": true})
	if err != nil {
		t.Fatal(err)
	}
	o := start(t, dir, fmt.Sprintf("%08x%s%s", len(job), job, stdin), python, filepath.Join(harness, "pinfold_warm.py"), "ready")
	o.stdout = strings.TrimPrefix(o.stdout, "ready\n")
	return o
}

// pythons are the interpreters to test with: the template's, and those of
// PINFOLD_TEST_PYTHONS, separated by colons.
func pythons(t *testing.T) []string {
	t.Helper()
	list := filepath.SplitList(os.Getenv("PINFOLD_TEST_PYTHONS"))
	if path, err := exec.LookPath("/usr/bin/python3"); err == nil {
		list = append(list, path)
	}
	if len(list) == 0 {
		t.Fatal("/usr/bin/python3 is not there: apt-get install python3")
	}
	return list
}

// install writes the harness's files into a directory and returns the first.
func install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(interpreter.PythonFiles(), interpreter.PythonLimiter()...) {
		content, ok := interpreter.File(name)
		if !ok {
			t.Fatalf("no file %s", name)
		}
		write(t, filepath.Join(dir, name), string(content))
	}
	return filepath.Join(dir, interpreter.PythonHarness)
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // as in a sandbox
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
}

// outcome is what a program did.
type outcome struct {
	stdout, stderr string
	status         syscall.WaitStatus
}

func start(t *testing.T, dir, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // programs of this file
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1", "PYTHONHASHSEED=1", "MPLBACKEND=Agg")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, &stdout, &stderr)
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return outcome{address.ReplaceAllString(stdout.String(), "0x"), address.ReplaceAllString(stderr.String(), "0x"), status}
}
