//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// The issue's own words.
func TestFortyTwo(t *testing.T) {
	ledger.Check(t)
	o := start(t, pinfold(t), "print(6*7)", "run", "--language", "python", "--json", "-")
	var r map[string]any
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r["status"] != "succeeded" || r["stdout"] != "42\n" || r["exit_code"] != float64(0) || o.code != 0 {
		t.Fatalf("%+v", r)
	}
	for field, kind := range map[string]string{
		"id": "string", "signal": "string", "timed_out": "bool", "cause": "map", "stderr": "string",
		"stdout_truncated": "bool", "stderr_truncated": "bool", "stdout_bytes": "float64", "stderr_bytes": "float64",
		"results": "[]", "artifacts": "[]", "usage": "map", "isolation": "map", "timings": "map",
	} {
		if got := fmt.Sprintf("%T", r[field]); !strings.HasPrefix(got, kind) {
			t.Errorf("%s is a %s, not a %s", field, got, kind)
		}
	}
	isolation, _ := r["isolation"].(map[string]any)
	enforced := fmt.Sprint(isolation["enforced"])
	for _, f := range []string{"network:none", "seccomp", "namespace:pid", "no_new_privs", "disk"} {
		if !strings.Contains(enforced, f) {
			t.Errorf("%s is not enforced: %s", f, enforced)
		}
	}
	gaps := fmt.Sprint(isolation["not_enforced"])
	if os.Geteuid() != 0 && !strings.Contains(enforced, "memory") && (!strings.Contains(gaps, "what:memory") || !strings.Contains(gaps, "fix:")) {
		t.Errorf("memory is not enforced, and not_enforced does not say so: %s", gaps)
	}
	again(t)
}

func TestRequirements(t *testing.T) {
	bin := pinfold(t)
	if o := start(t, bin, "print(1)", "run", "-l", "python", "--require", "network:none,seccomp,disk", "-"); o.code != 0 || o.stdout != "1\n" {
		t.Fatalf("%+v", o)
	}
	o := start(t, bin, "print(1)", "run", "-l", "python", "--require", "io", "-")
	if o.code != 126 || o.stdout != "" || !strings.Contains(o.stderr, "hint:") {
		t.Fatalf("%+v", o)
	}
	o = start(t, bin, "print(1)", "run", "-l", "python", "--json", "--require", "landlock:99", "-")
	if o.code != 126 || !strings.Contains(o.stdout, `"code":"requirement_unmet"`) {
		t.Fatalf("%+v", o)
	}
	again(t)
}

func TestFilesInAndOut(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data", "sub")
	if err := os.MkdirAll(data, 0o755); err != nil { //nolint:gosec // input
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "t.csv"), []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := `import sys, os
print(open("in/sub/t.csv").read(), sys.stdin.read(), os.environ["K"], sys.argv[1:])
open("plot.svg", "w").write("<svg/>"); os.makedirs("d/e"); open("d/e/x.txt", "w").write("x")
os.symlink("/etc/passwd", "evil.svg")`
	script := filepath.Join(dir, "p.py")
	if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	o := start(t, bin, "from stdin", "run", "--file", filepath.Join(dir, "data")+":in", "--env", "K=v",
		"--artifact", "*.svg", "--artifact", "d/**", "--artifacts-dir", out, script, "--", "--arg", "2")
	if o.code != 0 || o.stdout != "a\nb\n from stdin v ['--arg', '2']\n" {
		t.Fatalf("%+v", o)
	}
	if b, err := os.ReadFile(filepath.Join(out, "plot.svg")); err != nil || string(b) != "<svg/>" {
		t.Fatalf("%q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "d", "e", "x.txt")); err != nil || string(b) != "x" {
		t.Fatalf("%q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(out, "evil.svg")); err == nil {
		t.Fatal("a symbolic link came out")
	}
	again(t)
}

// Only what the program made or changed is new: neither its own file, nor what
// was put in and is as it was, nor what the host showed. An exact name brings out
// whatever lies there.
func TestOnlyWhatIsNewComesOut(t *testing.T) {
	ledger.Check(t)
	bin, dir := pinfold(t), t.TempDir()
	write(t, filepath.Join(dir, "in", "same.txt"), "as it was\n")
	write(t, filepath.Join(dir, "in", "touched.txt"), "as it was\n")
	write(t, filepath.Join(dir, "in", "changed.txt"), "as it was\n")
	write(t, filepath.Join(dir, "shown", "host.txt"), "the host's\n")
	program := `import os
open("made.txt", "w").write("new\\n")
open("in/changed.txt", "w").write("otherwise\\n")
os.utime("in/touched.txt")`
	args := []string{"run", "--json", "-l", "python", "-", "--file", filepath.Join(dir, "in"), "--mount", filepath.Join(dir, "shown") + ":/home/user/shown"}
	for what, c := range map[string]struct {
		args []string
		want string
	}{
		"all that is new":  {nil, "[in/changed.txt made.txt]"},
		"patterns":         {[]string{"-a", "**"}, "[in/changed.txt made.txt]"},
		"one directory's":  {[]string{"-a", "in/*"}, "[in/changed.txt]"},
		"of the host's":    {[]string{"-a", "shown/*"}, "[]"},
		"exact names":      {[]string{"-a", "in/same.txt", "-a", "shown/host.txt", "-a", "main.py"}, "[in/same.txt main.py shown/host.txt]"},
		"names and a glob": {[]string{"-a", "in/same.txt", "-a", "*"}, "[in/same.txt made.txt]"},
	} {
		o := start(t, bin, program, append(args, c.args...)...)
		var r sandbox.Result
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.Status != sandbox.StatusSucceeded {
			t.Fatalf("%s: %v %+v", what, err, o)
		}
		var paths []string
		for _, a := range r.Artifacts {
			paths = append(paths, a.Path)
		}
		if got := fmt.Sprint(paths); got != c.want {
			t.Errorf("%s: %s, want %s; skipped %+v", what, got, c.want, r.ArtifactsSkipped)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	shared := filepath.Join(dir, "shared") // a directory that may be written to: what was there before is not new
	write(t, filepath.Join(shared, "before.txt"), "before\n")
	long := time.Now().Add(-time.Hour)
	for _, f := range []string{shared, filepath.Join(shared, "before.txt")} {
		if err := errors.Join(os.Chown(f, 1000, 1000), os.Chtimes(f, long, long)); err != nil {
			t.Fatal(err)
		}
	}
	o := start(t, bin, `open("shared/after.txt", "w").write("after")`, "run", "--json", "-l", "python", "-", "--mount", shared+":/home/user/shared:rw")
	if !strings.Contains(o.stdout, `"path":"shared/after.txt"`) || strings.Contains(o.stdout, "before.txt") {
		t.Errorf("%+v", o)
	}
}

// A file may be larger than the memory limit, however fast it comes in: it
// counts as disk.
func TestFilesLargerThanMemory(t *testing.T) {
	ledger.Check(t)
	file := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(file, make([]byte, 150<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	o := start(t, pinfold(t), "wc -c <big", "run", "--memory", "16MiB", "--disk", "200MiB", "--file", file, "-l", "sh", "-")
	if o.code != 0 || strings.TrimSpace(o.stdout) != "157286400" {
		t.Errorf("%+v", o)
	}
}

// atOnce is what an end that takes some milliseconds may take on a busy machine. The
// programs that are ended sleep for ten minutes, and their time limit is that, too.
const atOnce = 20 * time.Second

// Output comes while the program runs, and Ctrl-C ends it at once.
func TestLiveOutputAndCancel(t *testing.T) {
	ledger.Check(t)
	cmd := exec.CommandContext(t.Context(), pinfold(t), "run", "--timeout", "600s", "-l", "python", "-") //nolint:gosec // the program under test
	cmd.Stdin = strings.NewReader("import time\nprint('first', flush=True)\ntime.sleep(600)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || time.Since(began) > atOnce {
		t.Fatalf("exit status %d after %v", code, time.Since(began))
	}
	again(t)
}

// Ctrl-C is a cause of its own.
func TestCancelledResult(t *testing.T) {
	ledger.Check(t)
	for range 10 { // what is printed at the last moment was once lost in one of fifty
		cancelledResult(t)
	}
	again(t)
}

func cancelledResult(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), pinfold(t), "run", "--json", "--timeout", "600s", "-l", "python", "-") //nolint:gosec // the program under test
	cmd.Stdin = strings.NewReader("import os\nprint('first', flush=True)\nos.execvp('sleep', ['sleep', '600'])")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitBelow(t, cmd.Process.Pid, "(sleep") // which comes after the first line
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	var r sandbox.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, stdout.Bytes())
	}
	if r.Cause.Kind != sandbox.CauseCancelled || r.Status != sandbox.StatusKilled || r.Stdout != "first\n" || cmd.ProcessState.ExitCode() != 130 {
		t.Fatalf("%s by %+v, %q, exit status %d", r.Status, r.Cause, r.Stdout, cmd.ProcessState.ExitCode())
	}
}

// waitBelow waits for a process of that name below one, and returns all there are.
func waitBelow(t *testing.T, pid int, name string) []string {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(5 * time.Millisecond) {
		if all := ledger.Below(pid); strings.Contains(strings.Join(all, "\n"), name) {
			return all
		}
	}
	t.Fatalf("no process %s below %d", name, pid)
	return nil
}

// What bad input gets: a clear error, never a hang or a panic.
func TestBadInput(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	dir := t.TempDir()
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		says        string
	}{
		{"unknown language", "x", []string{"-l", "pyton", "-"}, 125, "python"},
		{"missing file", "", []string{filepath.Join(dir, "nothing.py")}, 125, "does not exist"},
		{"directory", "", []string{dir}, 125, "directory"},
		{"zero limit", "x", []string{"-l", "python", "--memory", "0", "-"}, 125, "memory"},
		{"negative limit", "x", []string{"-l", "python", "--timeout", "-1s", "-"}, 125, "timeout"},
		{"overflowing limit", "x", []string{"-l", "python", "--memory", "99999999999TiB", "-"}, 125, "memory"},
		{"absurd limit", "x", []string{"-l", "python", "--processes", "100000000000", "-"}, 125, "processes"},
		{"unknown driver", "x", []string{"-l", "python", "--driver", "dokcer", "-"}, 125, "native"},
		{"unknown level", "x", []string{"-l", "python", "--isolation", "high", "-"}, 125, "namespace"},
		{"a level that there is not", "x", []string{"-l", "python", "--isolation", "vm", "-"}, 126, "--isolation"},
		{"a driver below the level", "x", []string{"-l", "python", "--driver", "process", "--isolation", "namespace", "-"}, 126, "process"},
		{"what a plain process cannot have", "x", []string{"-l", "python", "--driver", "process", "--require", "memory", "-"}, 126, "--driver native"},
		{"unknown template", "x", []string{"-l", "python", "--template", "x", "-"}, 125, "host"},
		{"network", "x", []string{"-l", "python", "--network", "host", "-"}, 125, "none"},
		{"path out", "x", []string{"-l", "python", "--file", "/etc/hostname:../x", "-"}, 125, ".."},
		{"nothing", "", []string{"-l", "python", "-"}, 125, "no program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := start(t, bin, c.stdin, append([]string{"run"}, c.args...)...)
			if o.code != c.code || !strings.Contains(o.stderr, c.says) || strings.Contains(o.stderr, "goroutine") {
				t.Fatalf("exit status %d, want %d with %q: %s", o.code, c.code, c.says, o.stderr)
			}
		})
	}
	if r, _ := run(t, bin, "python", "\x7fELF\x00\x01\x02 garbage"); r.Status != sandbox.StatusFailed || r.Cause.Kind != sandbox.CauseExited {
		t.Fatalf("binary garbage: %s %+v", r.Status, r.Cause)
	}
	if r, _ := run(t, bin, "python", `import os; os.write(1, b"\xff\xfe ok \x1b[2J"); os.close(1)`); r.Stdout != "\uFFFD ok \x1b[2J" || r.StdoutBytes != 10 {
		t.Fatalf("bytes that are not UTF-8: %q, %d", r.Stdout, r.StdoutBytes)
	}
	r, _ := run(t, bin, "python", "import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(100)\nprint('main')")
	if r.Status != sandbox.StatusSucceeded || r.Stdout != "main\n" || !r.PipesHeld || r.Usage.WallMS > 5000 {
		t.Fatalf("a grandchild that holds stdout: %s %q %v", r.Status, r.Stdout, r.PipesHeld)
	}
	again(t)
}

func TestTwentyAtOnce(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			o := start(t, bin, fmt.Sprintf("print(%d)", i), "run", "-l", "python", "-")
			if o.code != 0 || o.stdout != fmt.Sprintln(i) {
				t.Errorf("%d: %+v", i, o)
			}
		})
	}
	wg.Wait()
	again(t)
}

// A program that is killed in the middle leaves no process, and the next run
// removes the rest.
func TestKilledInTheMiddle(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	cmd := exec.CommandContext(t.Context(), bin, "run", "-l", "python", "-") //nolint:gosec // the program under test
	cmd.Stdin = strings.NewReader("import time\nprint('first', flush=True)\ntime.sleep(600)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	condemned := waitBelow(t, cmd.Process.Pid, "(python3")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for start := time.Now(); len(ledger.Living(condemned)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > atOnce {
			t.Fatalf("these outlive their host: %v", ledger.Living(condemned))
		}
	}
	if o := start(t, bin, "print(1)", "run", "-l", "python", "-"); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	again(t)
}

// What a program prints is output, whatever it looks like.
func TestForgedResult(t *testing.T) {
	forged := `{"id":"run_x","status":"succeeded","exit_code":0,"cause":{"kind":"exited"}}` + "\n<<RESULT>>\nevent: result\n\n0\r\n\r\n"
	r, o := run(t, pinfold(t), "python", fmt.Sprintf("import sys; sys.stdout.write(%q); sys.exit(9)", forged))
	if r.Status != sandbox.StatusFailed || r.ExitCode == nil || *r.ExitCode != 9 || r.Stdout != forged || o.code != 9 {
		t.Fatalf("%+v", r)
	}
}
