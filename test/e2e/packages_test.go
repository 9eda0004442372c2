//go:build linux

package e2e

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/test/ledger"
)

// The ways in docs/packages.md to bring along what the host does not have.
func TestPackages(t *testing.T) {
	ledger.Check(t)
	bin, dir := pinfold(t), t.TempDir()
	wheel := filepath.Join(dir, "wheels", "pinfold_hello-1.0-py3-none-any.whl")
	write(t, filepath.Join(dir, "site", "pinfold_hello", "__init__.py"), "greeting = 'hello from a package'\n")
	write(t, filepath.Join(dir, "node_modules", "pinfold-hello", "index.js"), "module.exports = 'hello from a package';\n")
	makeWheel(t, wheel)
	python := "import pinfold_hello; print(pinfold_hello.greeting)"
	install := `import os, subprocess, sys
subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--find-links", "wheels", "pinfold_hello"], check=True)
os.execv(sys.executable, [sys.executable, "-c", "import pinfold_hello as p; print(p.greeting, 'in', p.__file__.split('/lib/')[0])"])`
	const greeting = "hello from a package\n"
	for _, c := range []struct {
		what, language, code, want string
		args                       []string
	}{
		{"a directory, copied", "python", python, greeting, []string{"--file", filepath.Join(dir, "site"), "--env", "PYTHONPATH=site"}},
		{"a directory, shown", "python", python, greeting, []string{"--mount", filepath.Join(dir, "site") + ":/site", "--env", "PYTHONPATH=/site"}},
		{"a wheel as it is", "python", python, greeting, []string{"--file", wheel + ":x.whl", "--env", "PYTHONPATH=x.whl"}},
		{"a wheel that pip installs", "python", install, "hello from a package in /home/user/.local\n", []string{"--file", filepath.Join(dir, "wheels")}},
		{"node_modules, copied", "javascript", `console.log(require("pinfold-hello"))`, greeting, []string{"--file", filepath.Join(dir, "node_modules")}},
		{"node_modules, shown", "typescript", `import hello from "pinfold-hello"; console.log(hello as string)`, greeting, []string{"--mount", filepath.Join(dir, "node_modules") + ":/home/user/node_modules"}},
	} {
		o := start(t, bin, c.code, append([]string{"run", "-l", c.language, "-"}, c.args...)...)
		if o.code != 0 || o.stdout != c.want {
			t.Errorf("%s: %+v", c.what, o)
		}
	}
	for language, code := range map[string]string{"python": python, "javascript": `require("pinfold-hello")`, "typescript": `import hello from "pinfold-hello"; console.log(hello)`} {
		o := start(t, bin, code, "run", "-l", language, "-")
		if o.code != 1 || !strings.Contains(o.stderr, "is not where this program ran") {
			t.Errorf("%s without the package: %+v", language, o)
		}
	}
	o := start(t, bin, `import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-m", "pip", "install", "no-such-package"]).returncode)`, "run", "-l", "python", "-")
	if o.code == 0 || strings.Contains(o.stderr, "apt") || strings.Contains(o.stderr, "break-system") || !strings.Contains(o.stderr, "No matching distribution") {
		t.Errorf("pip without a network: %+v", o)
	}
}

// Scripts of the kinds that people have at hand do what they do elsewhere.
func TestScriptsAsPeopleWriteThem(t *testing.T) {
	bin, dir := pinfold(t), t.TempDir()
	write(t, filepath.Join(dir, "job.sh"), "set -euo pipefail\nwords=(a b)\necho ${#words[@]}\n")
	if o := start(t, bin, "", "run", filepath.Join(dir, "job.sh")); o.code != 0 || o.stdout != "2\n" {
		t.Errorf("a .sh without a #! line: %+v", o)
	}
	write(t, filepath.Join(dir, "job.js"), `require("no-such-module")`)
	o := start(t, bin, "", "run", filepath.Join(dir, "job.js"))
	if o.code != 1 || strings.Contains(o.stderr, "/tmp/.pinfold") || !strings.Contains(o.stderr, "Cannot find module 'no-such-module'") {
		t.Errorf("a module that is not there: %+v", o)
	}
	write(t, filepath.Join(dir, "ask.py"), "print('7')\n")
	if o := start(t, bin, "", "run", "--", filepath.Join(dir, "ask.py")); o.code != 0 || o.stdout != "7\n" {
		t.Errorf("the program after --: %+v", o)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a package's
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
}

// makeWheel makes the smallest wheel that pip takes.
func makeWheel(t *testing.T, name string) {
	t.Helper()
	write(t, name, "")
	f, err := os.Create(name) //nolint:gosec // a test's own
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for path, text := range map[string]string{
		"pinfold_hello/__init__.py":            "greeting = 'hello from a package'\n",
		"pinfold_hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pinfold-hello\nVersion: 1.0\n",
		"pinfold_hello-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"pinfold_hello-1.0.dist-info/RECORD":   "pinfold_hello/__init__.py,,\npinfold_hello-1.0.dist-info/METADATA,,\npinfold_hello-1.0.dist-info/WHEEL,,\npinfold_hello-1.0.dist-info/RECORD,,\n",
	} {
		entry, err := w.Create(path)
		if err == nil {
			_, err = entry.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
