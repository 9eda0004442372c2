package gvisor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/linux/proctree"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// hostEnv makes this test program a host process with living sandboxes: its file of id
// blocks, runsc, and the agent's file.
const hostEnv = "PINFOLD_TEST_GVISOR_HOST"

// hosted is how many sandboxes such a process has.
const hosted = 3

func TestMain(m *testing.M) {
	if in := strings.Split(os.Getenv(hostEnv), ":"); len(in) == 3 {
		beHost(in[0], in[1], in[2])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beHost(blocks, runsc, agent string) {
	d := New(Options{
		Runsc: runsc, Blocks: blocks, Agent: func() ([]byte, error) { return os.ReadFile(agent) }, //nolint:gosec // the test's
	})
	host, err := imagetest.Templates(sandbox.TemplateHost)
	if err != nil {
		panic(err)
	}
	r, err := d.Probe(context.Background(), host)
	if err != nil || r.Blocked != nil {
		panic(fmt.Sprint(err, r.Blocked))
	}
	fmt.Println("probed")
	for i := 0; ; i++ {
		plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), host, r, fmt.Sprintf("host%d-%d", os.Getpid(), i))
		if err == nil {
			_, err = d.Create(context.Background(), plan)
		}
		if err != nil {
			panic(err)
		}
		fmt.Println("made", plan.ID)
		if i == hosted-1 {
			_, _ = io.Copy(io.Discard, os.Stdin)
			return
		}
	}
}

// startHost starts such a process, and returns when it has said so many lines.
func startHost(t *testing.T, blocks, runsc string, lines int) *exec.Cmd {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(agent, agenttest.Bytes(t), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{hostEnv + "=" + strings.Join([]string{blocks, runsc, agent}, ":")}
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	for said := bufio.NewScanner(out); lines > 0 && said.Scan(); lines-- {
	}
	if lines > 0 {
		t.Fatal("the host process says nothing more")
	}
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// A host process that is killed takes its sandboxes with it, at once and by itself. What
// stays the next process finds and removes, and touches nothing of a process that lives.
func TestCrash(t *testing.T) {
	runsc := runscForTests(t)
	agenttest.Bytes(t)
	ledger.Check(t)
	blocks := filepath.Join(t.TempDir(), "blocks")
	victim, neighbour := startHost(t, blocks, runsc, 1+hosted), startHost(t, blocks, runsc, 1+hosted)
	condemned, spared := proctree.Below(victim.Process.Pid), proctree.Below(neighbour.Process.Pid)
	if len(condemned) < 3*hosted || len(spared) < 3*hosted {
		t.Fatalf("the hosts have %d and %d processes below them", len(condemned), len(spared))
	}
	kill(victim)
	gone(t, condemned)
	d := New(Options{
		Runsc: runsc, Blocks: blocks, Agent: func() ([]byte, error) { return agenttest.Bytes(t), nil },
	})
	defer d.Close()
	count := map[string]int{}
	found, err := d.Leftovers(t.Context())
	for _, l := range found {
		if count[l.Kind]++; l.Err != nil {
			t.Errorf("%+v", l)
		}
	}
	if err != nil || count["cgroup"] != hosted || count["lease"] != hosted || len(count) != 2 {
		t.Errorf("leftovers %v, %v", found, err)
	}
	if again, err := d.Leftovers(t.Context()); err != nil || len(again) > 0 {
		t.Errorf("the second time there are %v, %v", again, err)
	}
	for _, p := range spared {
		if !p.Lives() {
			t.Errorf("the neighbour's process %d does not live", p.PID)
		}
	}
	kill(neighbour)
	gone(t, spared)
	if _, err := d.Leftovers(t.Context()); err != nil {
		t.Error(err)
	}
}

// At whatever instant the host process is killed, nothing is left after the next start.
func TestKilledMaker(t *testing.T) {
	runsc := runscForTests(t)
	agenttest.Bytes(t)
	ledger.Check(t)
	blocks := filepath.Join(t.TempDir(), "blocks")
	d := New(Options{
		Runsc: runsc, Blocks: blocks, Agent: func() ([]byte, error) { return agenttest.Bytes(t), nil },
	})
	defer d.Close()
	for i := range 12 {
		host := startHost(t, blocks, runsc, 1)
		time.Sleep(time.Duration(i) * 15 * time.Millisecond)
		below := proctree.Below(host.Process.Pid)
		kill(host)
		gone(t, below)
		found, err := d.Leftovers(t.Context())
		for _, l := range found {
			if l.Err != nil {
				t.Errorf("%+v", l)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// gone waits until processes have ended.
func gone(t *testing.T, all []proctree.Process) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		for _, p := range all {
			if p.Lives() {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d processes outlive their host", left)
		}
	}
}

// Who made a control group is told by its name; what is not ours to judge counts as alive.
func TestOwnerLives(t *testing.T) {
	self, err := ownName()
	if err != nil {
		t.Fatal(err)
	}
	if id := strings.Repeat("x", 40); len(self+id) > 64 {
		t.Errorf("%s is too long for a control group", self+id)
	}
	child := exec.CommandContext(t.Context(), "/bin/sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	living := strings.TrimSuffix(nameOf(self, proctree.Named(child.Process.Pid)), "-")
	dead := nameOf(self, proctree.Process{PID: child.Process.Pid, Begun: 1})
	for name, want := range map[string]bool{
		self + "a": true, living + "-a": true, dead + "a": false,
		"12345678-token-a": true, "gv": true, "": true, namePrefix + strings.Repeat("0", nsDigits) + dead[len(namePrefix)+nsDigits:] + "a": true,
	} {
		if got := ownerLives(name, self); got != want {
			t.Errorf("%q lives: %v", name, got)
		}
	}
	kill(child)
	if ownerLives(living+"-a", self) {
		t.Error("a process that has ended lives")
	}
}
