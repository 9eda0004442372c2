//go:build linux

package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/linux/cgroup"
	"pinfold/sandbox"
)

// helperEnv has this test program make machines until it is killed: a JSON of helperInput.
const helperEnv = "PINFOLD_TEST_QEMU_HELPER"

type helperInput struct{ Kernel, Modules, State, Blocks, Agent, Warden string }

func (in helperInput) options() Options {
	read := func(file string) func() ([]byte, error) {
		return func() ([]byte, error) { return os.ReadFile(file) }
	}
	return Options{
		Kernel: in.Kernel, Modules: in.Modules, StateDir: in.State, blocks: in.Blocks, Agent: read(in.Agent), Warden: read(in.Warden),
	}
}

func TestMain(m *testing.M) {
	text := os.Getenv(helperEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var in helperInput
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		panic(err)
	}
	d := New(in.options())
	host, err := imagetest.Templates(sandbox.TemplateHost)
	if err != nil {
		panic(err)
	}
	fmt.Println("begun")
	for i := 0; ; i++ {
		plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), host, driver.Report{Driver: Name, Level: sandbox.LevelVM}, fmt.Sprintf("k%d-%d", os.Getpid(), i))
		if err == nil {
			_, err = d.Create(context.Background(), plan)
		}
		if err != nil {
			panic(err)
		}
		fmt.Println("made")
	}
}

// processesOf counts the host's processes whose command line begins with a word, and that
// are not root's on the host, where root is false.
func processesOf(t *testing.T, word string, root bool) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		line, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(line), word) {
			continue
		}
		if status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status")); err == nil && (root || !strings.Contains(string(status), "\nUid:\t0\t")) {
			n++
		}
	}
	return n
}

// A maker that is killed at any instant, while a machine boots, while others go on from it
// and while they live, leaves no process, and the next one removes the rest.
func TestKilledMaker(t *testing.T) {
	o := options(t)
	dir := filepath.Dir(o.StateDir)
	in := helperInput{
		Kernel: o.Kernel, Modules: o.Modules, State: o.StateDir, Blocks: o.blocks,
		Agent: filepath.Join(dir, "agent"), Warden: filepath.Join(dir, "warden"),
	}
	for file, program := range map[string][]byte{in.Agent: agenttest.Bytes(t), in.Warden: agenttest.Program(t, agenttest.Warden)} {
		if err := os.WriteFile(file, program, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		lines int
		after time.Duration
	}{{1, 0}, {1, 50 * time.Millisecond}, {1, time.Second}, {1, 3 * time.Second}, {2, 0}, {2, 40 * time.Millisecond}, {3, 100 * time.Millisecond}} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env, cmd.Stderr = []string{helperEnv + "=" + string(text)}, os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range c.lines {
			lines.Scan()
		}
		time.Sleep(c.after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// Who was about to become QEMU has its maker's command line, and its lock. Root's
		// virtual machines are others'.
		for until := time.Now().Add(endTimeout); processesOf(t, "qemu-system-x86_64", false)+processesOf(t, "/proc/self/exe", true) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%d: a machine outlives its maker", i)
			}
		}
		d := New(in.options())
		left, err := d.Leftovers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			if l.Err != nil {
				t.Errorf("%+v", l)
			}
		}
		if c.lines > 1 && len(left) == 0 {
			t.Errorf("%d: nothing is said to be left", i)
		}
		again, err := d.Leftovers(t.Context())
		if err != nil || len(again) > 0 {
			t.Errorf("%d: the second time %v are found, %v", i, again, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		for _, dir := range groupsOf(t) {
			t.Errorf("%d: %s stays", i, dir)
		}
	}
}

// groupsOf are the cgroups of all machines there are.
func groupsOf(t *testing.T) (all []string) {
	t.Helper()
	h, err := cgroup.Detect(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range h.Dirs() {
		found, _ := filepath.Glob(filepath.Join(dir, "*", ""))
		for _, f := range found {
			if info, err := os.Stat(f); err == nil && info.IsDir() {
				all = append(all, f)
			}
		}
	}
	return all
}
