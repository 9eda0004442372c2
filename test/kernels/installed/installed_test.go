//go:build linux

package installed

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// machineEnv says that this is a machine that the tests may change. Its value is
// a checkout in which make build has been done.
const machineEnv = "PINFOLD_TEST_CHECKOUT"

func checkout(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(machineEnv)
	if dir == "" {
		t.Skip("this changes the machine: test/kernels runs it in one of its own")
	}
	return dir
}

// commands returns the indented lines of a section of docs/server.md.
func commands(t *testing.T, checkout, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "docs/server.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/server.md has no section %q", heading)
	}
	var script strings.Builder
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if command, ok := strings.CutPrefix(line, "    "); ok {
			script.WriteString(command)
		}
	}
	if script.Len() == 0 {
		t.Fatalf("the section %q has no commands", heading)
	}
	return script.String()
}

// paste runs what a person would paste, and returns what it printed.
func paste(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ex")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s\n%s", err, stdout.String(), stderr.String(), journal())
	}
	return stdout.String()
}

// journal is what the service's log says last.
func journal() string {
	out, _ := exec.Command("journalctl", "--no-pager", "-n", "40", "-u", "pinfold").CombinedOutput()
	return string(out)
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %v: %v\n%s\n%s", args, err, out, journal())
	}
	return strings.TrimSpace(string(out))
}

// asRoot and asUser are what an installed server cannot enforce, on a machine
// that has everything.
var (
	asRoot = []string{"io"}
	asUser = []string{"devices:own", "io", "uid:distinct"}
)

func TestInstalled(t *testing.T) {
	dir := checkout(t)
	printed := strings.Fields(paste(t, dir, commands(t, dir, "## Install")))
	key := printed[len(printed)-1]
	t.Run("root", func(t *testing.T) { drive(t, key, asRoot) })
	t.Run("reload", func(t *testing.T) {
		before := systemctl(t, "show", "-P", "MainPID", "pinfold")
		systemctl(t, "reload", "pinfold")
		if after := systemctl(t, "show", "-P", "MainPID", "pinfold"); after != before {
			t.Errorf("a reload changed the process from %s to %s", before, after)
		}
		runs(t, dial(t, key))
	})
	t.Run("crash", func(t *testing.T) { crash(t, key) })
	t.Run("stop", stop)
	t.Run("without root", func(t *testing.T) {
		paste(t, dir, commands(t, dir, "### Without root"))
		drive(t, key, asUser)
		if user := systemctl(t, "show", "-P", "User", "pinfold"); user != "pinfold" {
			t.Errorf("the server runs as %q", user)
		}
		if out := paste(t, t.TempDir(), "echo 'print(6*7)' | pinfold run --language python -"); out != "42\n" {
			t.Errorf("beside it root's run printed %q", out)
		}
	})
	t.Run("stop without root", stop)
}

func dial(t *testing.T, key string) *client.Client {
	t.Helper()
	c, err := client.New("http://127.0.0.1:7463", client.WithKey(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// runs runs one program and returns the result.
func runs(t *testing.T, c *client.Client) *sandbox.Result {
	t.Helper()
	return run(t, c, sandbox.Spec{Language: "python", Code: "print(6*7)"})
}

func run(t *testing.T, c *client.Client, s sandbox.Spec) *sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := c.Run(ctx, s, client.RunOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, journal())
	}
	return r
}

// drive uses the server as people do.
func drive(t *testing.T, key string, gaps []string) {
	c := dial(t, key)
	r := runs(t, c)
	if r.Status != sandbox.StatusSucceeded || r.Stdout != "42\n" {
		t.Fatalf("%+v", r)
	}
	missing := []string{}
	for _, g := range r.Isolation.NotEnforced {
		missing = append(missing, g.What)
		t.Logf("not enforced: %s: %s (%s)", g.What, g.Why, g.Fix)
	}
	slices.Sort(missing)
	if !slices.Equal(missing, gaps) {
		t.Errorf("not enforced are %v, expected %v; enforced: %v", missing, gaps, r.Isolation.Enforced)
	}
	for _, l := range []struct {
		cause sandbox.CauseKind
		code  string
		set   sandbox.Limits
	}{
		{sandbox.CauseMemory, "x = []\nwhile True: x.append(bytearray(b'x' * (1 << 20)))", sandbox.Limits{MemoryBytes: 64 << 20}},
		{sandbox.CauseCPUTime, "while True: pass", sandbox.Limits{CPUTimeMS: 1000}},
		{sandbox.CauseWallTime, "import time; time.sleep(60)", sandbox.Limits{WallTimeMS: 1000}},
		{sandbox.CauseDisk, "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 16))", sandbox.Limits{DiskBytes: 4 << 20}},
	} {
		if r := run(t, c, sandbox.Spec{Language: "python", Code: l.code, Limits: l.set}); r.Cause.Kind != l.cause {
			t.Errorf("a program that must end by %s ended by %+v, stderr %.300q", l.cause, r.Cause, r.Stderr)
		}
	}
	live(t, c)
}

// live uses a living sandbox.
func live(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	box, err := c.Create(ctx, sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	if err := box.WriteFile(ctx, "in.txt", 0o600, 5, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := box.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", "tr a-z A-Z <in.txt | tee out.txt"}}, client.ExecOptions{Stdout: &out})
	if err != nil || out.String() != "HELLO" {
		t.Fatalf("%+v %q %v", p, out.String(), err)
	}
	out.Reset()
	if _, err := box.ReadFile(ctx, "out.txt", 0, -1, &out); err != nil || out.String() != "HELLO" {
		t.Fatalf("%q %v", out.String(), err)
	}
	if _, err := box.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
}

// crash kills the server; systemd starts it again, and nothing is left.
func crash(t *testing.T, key string) {
	c := dial(t, key)
	if _, err := c.Create(t.Context(), sandbox.Create{}); err != nil {
		t.Fatal(err)
	}
	before := systemctl(t, "show", "-P", "MainPID", "pinfold")
	systemctl(t, "kill", "--kill-whom=main", "-s", "KILL", "pinfold")
	deadline := time.Now().Add(time.Minute)
	for systemctl(t, "show", "-P", "MainPID", "pinfold") == before || systemctl(t, "show", "-P", "ActiveState", "pinfold") != "active" {
		if time.Now().After(deadline) {
			t.Fatalf("systemd did not start the server again\n%s", journal())
		}
		time.Sleep(100 * time.Millisecond)
	}
	runs(t, c)
	for info, err := range c.Sandboxes(t.Context(), client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.State != sandbox.StateEnded {
			t.Errorf("%s is %s after the crash", info.ID, info.State)
		}
	}
}

// stop stops the service, which leaves nothing.
func stop(t *testing.T) {
	systemctl(t, "stop", "pinfold")
	if result := systemctl(t, "show", "-P", "Result", "pinfold"); result != "success" {
		t.Errorf("it ended with %s\n%s", result, journal())
	}
	left, err := filepath.Glob("/sys/fs/cgroup/system.slice/pinfold.service/*")
	if err != nil || len(left) > 0 {
		t.Errorf("cgroups are left: %v %v", left, err)
	}
	if out, _ := exec.Command("pgrep", "-a", "-x", "pinfold|pinfold-agent").Output(); len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("processes are left: %s", out)
	}
}
