//go:build linux

package e2e

import (
	"strings"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// forge begins programs that write the results themselves.
const forge = `
import os, sys
path = "/tmp/.pinfold/results.jsonl"
def done():
    print("done", flush=True)
    os._exit(0)
def write(data):
    with open(path, "wb") as f: f.write(data)
    done()
`

// hostileResults are what programs put where their results are read.
var hostileResults = []struct {
	name, code string
	values     int    // results that are taken
	reason     string // in the first note; empty: there is no note
}{
	{"honest", `write(b'{"text/plain": "x"}\n')`, 1, ""},
	{"huge", `f = open(path, "wb"); f.truncate(17 << 20); done()`, 0, "larger"},
	{"sparse terabyte", "f = open(path, 'wb')\ntry: f.truncate(1 << 40)\nexcept OSError: f.truncate(60 << 20)\ndone()", 0, "larger"},
	{"full", `write(b'{"text/plain": "' + b'x' * ((16 << 20) - 30) + b'"}')`, 1, ""},
	{"link", `os.symlink("/etc/passwd", path); done()`, 0, "a symbolic link"},
	{"link of the directory", `import shutil; shutil.rmtree("/tmp/.pinfold"); os.mkdir("/tmp/x"); open("/tmp/x/results.jsonl", "w").write('{"text/plain": "x"}'); os.symlink("/tmp/x", "/tmp/.pinfold"); done()`, 0, "results"},
	{"pipe", `os.mkfifo(path); done()`, 0, "not a regular file"},
	{"directory", `os.mkdir(path); done()`, 0, "not a regular file"},
	{"unreadable", `f = open(path, "wb"); f.write(b'{"text/plain": "x"}'); os.fchmod(f.fileno(), 0); f.close(); done()`, -1, ""},
	{"nothing in it", `write(b"")`, 0, ""},
	{"deep", `write(b'{"application/json": ' + b"[" * 400000 + b"]" * 400000 + b"}")`, 0, "nested too deep"},
	{"many names", `write(b'{"application/json": {' + b",".join(b'"%d": 0' % i for i in range(200000)) + b"}}")`, 0, "too many names"},
	{"a million values", `write(b'{"application/json": ' + b"[" * 1000000 + b"]" * 1000000 + b"}")`, 0, "more than 500000 values"},
	{"a million names", `write(b'{"application/json": {' + b",".join(b'"%d": 0' % i for i in range(1000000)) + b"}}")`, 0, "more than 500000 values"},
	{"not UTF-8", `write(b'{"text/plain": "\xff\xfe"}')`, 0, "not UTF-8"},
	{"ten thousand", `write(b'{"text/plain": "x"}\n' * 10000)`, 100, "more than 100"},
	{"no images", `write(b'{"image/png": "aGVsbG8="}\n{"image/svg+xml": "<html>"}\n{"image/jpeg": 5}')`, 0, "not an image"},
	{"scripts", `write(b'{"text/javascript": "1", "application/x-sh": "2"}')`, 0, "no such type"},
	{"names of ours", `write(b'{"status": "killed", "exit_code": 1}\n{"cause": {"kind": "memory"}}')`, 0, "no such type"},
	{"escapes", `write(b'{"skipped": "\\u001b]0;x\\u0007 \\u202e"}')`, 0, `\x1b]0;x\a`},
	{"grows while it is read", `
if os.fork() == 0:
    os.setsid()
    f = open(path, "wb", buffering=0)
    for i in range(100000): f.write(b'{"text/plain": "x"}\n')
    os._exit(0)
import time; time.sleep(0.02); done()`, -1, ""},
	{"changes its kind while it is read", `
if os.fork() == 0:
    os.setsid()
    while True:
        for make in (lambda: open(path, "w").close(), lambda: os.mkfifo(path), lambda: os.symlink("/proc/1/environ", path)):
            try: os.unlink(path)
            except OSError: pass
            make()
import time; time.sleep(0.05); done()`, -1, ""},
}

// A results file can add values to a result and change nothing else.
func TestHostileResults(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	for _, c := range hostileResults {
		t.Run(c.name, func(t *testing.T) {
			r, o := run(t, bin, "python", forge+c.code)
			if r.Status != sandbox.StatusSucceeded || r.Cause.Kind != sandbox.CauseExited || r.ExitCode == nil || *r.ExitCode != 0 || r.Stdout != "done\n" || o.code != 0 {
				t.Fatalf("%s %+v %q %q", r.Status, r.Cause, r.Stdout, r.Stderr)
			}
			if c.values >= 0 && len(r.Results) != c.values {
				t.Errorf("%d results, not %d", len(r.Results), c.values)
			}
			for _, v := range r.Results {
				if s := textOf(v, plainText); strings.Trim(s, "x") != "" {
					t.Errorf("result %.100q", s)
				}
			}
			switch {
			case c.values < 0:
			case c.reason == "" && len(r.ResultsSkipped) > 0:
				t.Errorf("skipped %+v", r.ResultsSkipped)
			case c.reason != "" && (len(r.ResultsSkipped) == 0 || !strings.Contains(r.ResultsSkipped[0].Reason, c.reason)):
				t.Errorf("skipped %+v, not %q", r.ResultsSkipped, c.reason)
			}
		})
	}
	again(t)
}

// A program that a limit ended has no values, and keeps its cause.
func TestResultsOfKilledPrograms(t *testing.T) {
	r, _ := run(t, pinfold(t), "python", forge+"open(path, 'wb').write(b'{\"text/plain\": \"x\"}\\n{\"text/pl')\nwhile True: pass", "--cpu-time", "300ms")
	if r.Cause.Kind != sandbox.CauseCPUTime || r.Status != sandbox.StatusKilled {
		t.Fatalf("%s %+v", r.Status, r.Cause)
	}
}

// The list of imports holds for the program, not for what it imports.
func TestAllowedImports(t *testing.T) {
	bin := pinfold(t)
	for name, c := range map[string]struct {
		code, stdout, stderr string
		allowed              []string
	}{
		"listed":         {code: "import json\nprint(json.dumps(1))", allowed: []string{"json"}, stdout: "1\n"},
		"not listed":     {code: "import socket", allowed: []string{"json", "math"}, stderr: "ImportError: socket may not be imported in this run; allowed_imports has json, math\n"},
		"from":           {code: "from urllib.request import urlopen", allowed: []string{"json"}, stderr: "ImportError: urllib may not"},
		"below":          {code: "import xml.dom\nprint(xml.dom.__name__)", allowed: []string{"xml"}, stdout: "xml.dom\n"},
		"loaded":         {code: "import sys, os\nprint(sys.argv[0])", allowed: []string{"json"}, stdout: "main.py\n"},
		"by a library":   {code: "import logging\nimport socket", allowed: []string{"logging"}, stderr: "ImportError: socket may not"},
		"loaded by one":  {code: "import logging\nprint(1)\nimport threading", allowed: []string{"logging"}, stdout: "1\n", stderr: "ImportError: threading may not"},
		"by name":        {code: "import importlib\nimportlib.import_module('socket')", allowed: []string{"importlib"}, stderr: "ImportError: socket may not"},
		"large library":  {code: "import pandas\nimport matplotlib.pyplot\nprint(pandas.DataFrame({'a': [1]}).to_json())", allowed: []string{"pandas", "matplotlib"}, stdout: `{"a":{"0":1}}` + "\n"},
		"from C":         {code: "import datetime\nprint(datetime.datetime.strptime('2020', '%Y').year)", allowed: []string{"datetime"}, stdout: "2020\n"},
		"caught":         {code: "try: import socket\nexcept ImportError as e: print(e.name)", allowed: []string{"json"}, stdout: "socket\n"},
		"own file":       {code: "open('helper.py', 'w').write('import json, socket')\nimport helper", allowed: []string{"json"}, stderr: "ImportError: socket may not"},
		"in a traceback": {code: "def f():\n    import socket\nf()", allowed: []string{"json"}, stderr: "line 2, in f\n    import socket\nImportError"},
	} {
		t.Run(name, func(t *testing.T) {
			var flags []string
			for _, a := range c.allowed {
				flags = append(flags, "--allow-import", a)
			}
			o := start(t, bin, c.code, append([]string{"run", "-l", "python", "-"}, flags...)...)
			if o.stdout != c.stdout || !strings.Contains(o.stderr, c.stderr) || (o.code == 0) != (c.stderr == "") || strings.Contains(o.stderr, ".pinfold") {
				t.Fatalf("%+v", o)
			}
		})
	}
	none := `{"language": "python", "code": "import math", "allowed_imports": []}`
	if o := start(t, bin, none, "run", "--spec", "-"); o.code != 1 || !strings.Contains(o.stderr, "allowed_imports has nothing") {
		t.Errorf("an empty list: %+v", o)
	}
	if o := start(t, bin, "echo", "run", "-l", "sh", "--allow-import", "x", "-"); o.code != 125 || !strings.Contains(o.stderr, "leave --allow-import out") {
		t.Errorf("another language: %+v", o)
	}
	if o := start(t, bin, "1", "run", "-l", "python", "--allow-import", "a.b", "-"); o.code != 125 || !strings.Contains(o.stderr, "write a: it stands for everything in it") {
		t.Errorf("a name with a dot: %+v", o)
	}
}
