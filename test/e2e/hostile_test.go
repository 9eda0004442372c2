//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// A program of 2 GiB is refused, not read.
func TestHugeProgram(t *testing.T) {
	huge := filepath.Join(t.TempDir(), "huge.py")
	if err := os.WriteFile(huge, []byte("print(1)"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 2<<30); err != nil {
		t.Fatal(err)
	}
	o := start(t, pinfold(t), "", "run", huge)
	if o.code != 125 || !strings.Contains(o.stderr, "huge.py is larger than 16MiB") {
		t.Fatalf("%+v", o)
	}
}

// Names that would leave the sandbox's directory or mean something to a terminal
// never reach one: on the command line, in a request, and among what comes out.
func TestHostileNames(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	dir := t.TempDir()
	evil := filepath.Join(dir, "a\x1b[2J\n.txt")
	if err := os.WriteFile(evil, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	quiet := func(name string, o output) {
		t.Helper()
		if strings.ContainsAny(o.stderr, "\x1b\u009b\x00") || strings.Contains(o.stdout, "\x1b") {
			t.Errorf("%s: raw escape bytes: %q %q", name, o.stdout, o.stderr)
		}
	}
	for _, name := range []string{"../x.py", "a/../../x.py", "/etc/x.py", "x\u0000.py", ""} {
		request := `{"language": "python", "files": [{"path": "` + strings.ReplaceAll(name, "\x00", `\u0000`) + `", "content": "print(1)"}], "code": "print(2)"}`
		o := start(t, bin, request, "run", "--json", "--spec", "-")
		if o.code != 125 || !strings.Contains(o.stdout, `"code":"bad_path"`) {
			t.Errorf("%q: %+v", name, o)
		}
		quiet(name, o)
	}
	missing := start(t, bin, "", "run", filepath.Join(dir, "no\x1b]0;title\x07.py"))
	if missing.code != 125 || !strings.Contains(missing.stderr, `\x1b]0;title\a.py does not exist`) {
		t.Errorf("%+v", missing)
	}
	quiet("a missing file", missing)
	in := start(t, bin, "import os; print(ascii(sorted(os.listdir())))", "run", "-l", "python", "--file", evil, "-")
	if in.code != 0 && in.code != 125 || in.code == 0 && !strings.Contains(in.stdout, `a\x1b[2J\n.txt`) {
		t.Errorf("a file with escape sequences in its name: %+v", in)
	}
	quiet("--file", in)
	out := filepath.Join(dir, "out")
	program := "import os\nfor n in (b'ok.txt', b'e\\x1b[2J.txt', b'n\\n.txt', b'\\xff\\xfe.txt'): open(n, 'w').write('x')\nos.symlink('/etc/passwd', 'l.txt'); os.mkfifo('p.txt')"
	o := start(t, bin, program, "run", "-l", "python", "--artifact", "*.txt", "--artifacts-dir", out, "-")
	quiet("artifacts", o)
	found, err := os.ReadDir(out)
	if err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	for _, e := range found {
		if strings.ContainsAny(e.Name(), "\x1b\n") || !e.Type().IsRegular() {
			t.Errorf("%q came out", e.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(out, "ok.txt")); err != nil {
		t.Error(err)
	}
	again(t)
}

// A program may do with its output what it likes.
func TestHostileOutput(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	r, _ := run(t, bin, "python", "import os, time\nos.write(1, b'first\\n'); os.close(1); os.close(2); time.sleep(0.3); open('late', 'w')", "--artifact", "late")
	if r.Status != sandbox.StatusSucceeded || r.Stdout != "first\n" || len(r.Artifacts) != 1 || r.PipesHeld {
		t.Errorf("a program that closes its stdout: %s by %+v, %q", r.Status, r.Cause, r.Stdout)
	}
	r, _ = run(t, bin, "python", "print('x' * 3000000, end='')", "--output-limit", "1000B")
	if r.Status != sandbox.StatusSucceeded || len(r.Stdout) != 1000 || !r.StdoutTruncated || r.StdoutBytes != 3_000_000 || r.StderrTruncated {
		t.Errorf("much output: %s, %d of %d bytes, truncated %v", r.Status, len(r.Stdout), r.StdoutBytes, r.StdoutTruncated)
	}
	r, _ = run(t, bin, "sh", "yes", "--output-limit", "1000B")
	if len(r.Stdout) != 1000 || !r.StdoutTruncated || r.StdoutBytes <= 1000 {
		t.Errorf("a flood: %d of %d bytes", len(r.Stdout), r.StdoutBytes)
	}
	again(t)
}

// --mount shows a directory of the host's, read-only unless it is said to be
// writable.
func TestMounts(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("from the host"), 0o644); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		o := start(t, bin, "print(1)", "run", "-l", "python", "--mount", dir+":/data:rw", "-")
		if o.code != 125 || !strings.Contains(o.stderr, "belongs to root") || !strings.Contains(o.stderr, "hint: ") {
			t.Errorf("a directory of root's, writable: %+v", o)
		}
		if err := os.Chown(dir, asuser.ID, asuser.ID); err != nil {
			t.Fatal(err)
		}
	}
	program := "print(open('/data/in.txt').read())\ntry: open('/data/out.txt', 'w').write('from inside'); print('written')\nexcept OSError as e: print(e.strerror)"
	for mode, want := range map[string]string{"": "Read-only file system", ":ro": "Read-only file system", ":rw": "written"} {
		o := start(t, bin, program, "run", "-l", "python", "--mount", dir+":/data"+mode, "-")
		if o.code != 0 || o.stdout != "from the host\n"+want+"\n" {
			t.Errorf("mode %q: %+v, want %s", mode, o, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out.txt")); err != nil || string(b) != "from inside" {
		t.Errorf("%q, %v", b, err)
	}
	if _, o := run(t, bin, "python", "print(1)", "--mount", dir+":/data"); o.code != 0 {
		t.Errorf("%+v", o)
	}
	again(t)
}

// Compile errors are the compiler's, in every compiled language: TestLanguages.
// A compiler that needs too much is ended by limits of its own.
func TestCompileBomb(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	r, o := run(t, bin, "c", "#include \"/dev/zero\"\n")
	if r.Cause.Phase != sandbox.PhaseCompile || r.Cause.Kind != sandbox.CauseMemory || r.Status != sandbox.StatusKilled || o.code != 137 {
		t.Fatalf("%s by %+v, exit status %d\n%.300s", r.Status, r.Cause, o.code, r.Stderr)
	}
	if r.Compile == nil || r.Cause.Limit != r.Compile.Limits.MemoryBytes || r.Cause.Limit == sandbox.DefaultLimits().MemoryBytes {
		t.Errorf("the compile step is %+v, the limit %d", r.Compile, r.Cause.Limit)
	}
	again(t)
}
