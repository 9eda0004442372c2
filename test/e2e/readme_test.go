//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/config"
	"pinfold/test/ledger"
)

// What stands in the README in blocks of the language sh works when pasted, in order,
// in a clean checkout. Commands that build and test Pinfold itself are left out.
func TestReadme(t *testing.T) {
	ledger.Check(t)
	dir, script := checkout(t), readmeCommands(t)
	var upper []string
	hellos := 2
	if os.Geteuid() == 0 { // it has the upper rungs, too, with a runsc and a kernel as if they were installed
		runsc, kernel := found(t)
		upper = []string{"PATH=" + filepath.Dir(runsc) + ":" + os.Getenv("PATH"), config.KernelEnv + "=" + kernel}
		hellos += 3
	}
	out, err := runScript(t, dir, script, upper...)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, script)
	}
	t.Log(out)
	if n := strings.Count(out, "hello from 3."); n < hellos {
		t.Errorf("%d times hello, not %d", n, hellos)
	}
	untracked(t, dir)
	for _, file := range []string{"out/chart.svg", "chart.svg"} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !bytes.HasPrefix(b, []byte("<svg")) { //nolint:gosec // a test's own
			t.Errorf("%s: %v, %.80q", file, err, b)
		}
	}
	for _, want := range []string{
		`"state":"running"`, "\n42\n", "hello from 3.", "arguments of the program", "3 bars", `"stdout":"42\n"`, `"exit_code":1`, "FileNotFoundError", `"state":"end`,
		"month,visitors", "1.414213562373", "KeyError: 'visitor'", "hello from inside",
	} {
		if !strings.Contains("\n"+out, want) {
			t.Errorf("nothing printed %q:\n%s", want, out)
		}
	}
}

// untracked says what git would show of a checkout after the commands.
func untracked(t *testing.T, dir string) {
	t.Helper()
	ignored, err := os.ReadFile(filepath.Join("..", "..", ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !slices.Contains(tracked, name) && !regexp.MustCompile(`(?m)^/`+regexp.QuoteMeta(name)+`/?$`).Match(ignored) {
			t.Errorf("the commands leave %s, which .gitignore does not name", name)
		}
	}
}

// fenced are the README's blocks of shell commands.
var fenced = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// readmeCommands is the README as one script, with a port of its own.
func readmeCommands(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	var script strings.Builder
	n := 0
	for _, block := range fenced.FindAllSubmatch(text, -1) {
		n++
		if strings.HasPrefix(string(block[1]), "# as root") && os.Geteuid() != 0 {
			continue
		}
		for line := range strings.Lines(string(block[1])) {
			if !strings.HasPrefix(line, "make ") {
				script.WriteString(line)
			}
		}
	}
	if n < 6 {
		t.Fatalf("%d blocks of commands: the README was not understood", n)
	}
	all := strings.ReplaceAll(script.String(), "127.0.0.1:7463", address)
	served := strings.ReplaceAll(all, "serve --state state", "serve --state state --listen "+address)
	if served == all {
		t.Fatal("no server is started")
	}
	return served
}

// tracked is what the README's commands need of a checkout.
var tracked = []string{"client", "examples", "sandbox", "internal", "go.mod", "go.sum"}

// checkout copies what a clone has, with bin/pinfold in it.
func checkout(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range tracked {
		cp := exec.CommandContext(t.Context(), "cp", "-R", filepath.Join(root, name), dir) //nolint:gosec // our own sources
		if out, err := cp.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil { //nolint:gosec // as a clone's
		t.Fatal(err)
	}
	bin := filepath.Dir(pinfold(t))
	for _, name := range []string{"pinfold", "pinfold-agent", "pinfold-warden"} {
		if err := os.Link(filepath.Join(bin, name), filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runScript pastes the commands into a shell that stops at the first that fails
// unexpectedly, and ends whatever it leaves. More is added to its environment.
func runScript(t *testing.T, dir, script string, more ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", script+"\nwait\n")
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PINFOLD_") })
	cmd.Env = append(cmd.Env, more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the server that it had started
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it took too long: %w", err)
	}
	return out.String(), err
}
