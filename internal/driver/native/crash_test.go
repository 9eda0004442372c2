//go:build linux

package native

import (
	"bufio"
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
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// hostEnv makes TestCrash a host process with living sandboxes: its state
// directory.
const hostEnv = "PINFOLD_TEST_HOST"

// hosted is how many sandboxes such a process has.
const hosted = 10

// atOnce is what their end, which takes some milliseconds, may take on a busy machine.
// Nothing in them ends by itself: neither the agents, which wait for their host, nor the
// programs, which sleep.
const atOnce = 20 * time.Second

// A host process that is killed takes its sandboxes with it, at once and by
// itself. What stays (cgroups, locks, leases) the next process finds and removes,
// and touches nothing of a process that lives.
func TestCrash(t *testing.T) {
	if state := os.Getenv(hostEnv); state != "" {
		beHost(t, state)
		return
	}
	agent := agenttest.Bytes(t)
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	victim, neighbour := startHost(t, state, agent), startHost(t, state, agent)
	condemned, spared := ledger.Below(victim.Process.Pid), ledger.Below(neighbour.Process.Pid)
	if len(condemned) < 2*hosted || len(spared) < 2*hosted {
		t.Fatalf("the hosts have %d and %d processes below them", len(condemned), len(spared))
	}
	_ = victim.Process.Kill()
	_ = victim.Wait()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		left := ledger.Living(condemned)
		if len(left) == 0 {
			t.Logf("%d processes were gone %v after their host", len(condemned), time.Since(start).Round(time.Millisecond))
			break
		}
		if time.Since(start) > atOnce {
			t.Fatalf("these outlive their host:\n%s", strings.Join(left, "\n"))
		}
	}
	d := newDriver(t, state)
	found, err := d.Leftovers(t.Context())
	if err != nil {
		t.Fatalf("Leftovers: %v", err)
	}
	checkLeftovers(t, d, found)
	if again, err := d.Leftovers(t.Context()); err != nil || len(again) > 0 {
		t.Errorf("the second time, Leftovers found %v, %v", again, err)
	}
	if left := ledger.Living(spared); len(left) != len(spared) {
		t.Errorf("of the neighbour's %d processes, %d live", len(spared), len(left))
	}
	neighbour.stop(t)
}

func TestCrashAsUser(t *testing.T) {
	asuser.Rerun(t, "TestCrash", []string{agenttest.Agent}, nil)
}

// checkLeftovers wants one lock, and a cgroup and a lease for each sandbox where
// there are such.
func checkLeftovers(t *testing.T, d *Driver, found []driver.Leftover) {
	t.Helper()
	count := map[string]int{}
	for _, l := range found {
		if l.Err != nil {
			t.Errorf("%s %s could not be removed: %v", l.Kind, l.Name, l.Err)
		}
		count[l.Kind]++
	}
	want := map[string]int{"lock": 1}
	if d.host.ids.pool != nil {
		want["lease"] = hosted
	}
	plan := planFor(t, d, "leftover-check")
	if plan.Enforces(sandbox.FeatureMemory) || plan.Enforces(sandbox.FeatureCPUs) {
		want["cgroup"] = hosted
	}
	for kind, n := range want {
		if count[kind] != n {
			t.Errorf("%d leftovers of kind %s, not %d: %+v", count[kind], kind, n, found)
		}
	}
}

// hostProcess is a process with living sandboxes.
type hostProcess struct {
	*exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// startHost starts this test binary as one.
func startHost(t *testing.T, state string, agent []byte) *hostProcess {
	t.Helper()
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "pinfold-agent"), agent, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &hostProcess{Cmd: exec.Command("/proc/self/exe", "-test.run=^TestCrash$", "-test.timeout=5m")}
	h.Env = append(os.Environ(), hostEnv+"="+state, agenttest.DirEnv+"="+programs)
	h.Stderr = os.Stderr
	h.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if h.stdin, err = h.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(stdout)
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Process.Kill(); _ = h.Wait() })
	if line, err := h.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the host process says %q, %v", line, err)
	}
	return h
}

// stop lets a host process end in order; it reports whether all sandboxes were
// still alive.
func (h *hostProcess) stop(t *testing.T) {
	t.Helper()
	_ = h.stdin.Close()
	rest, _ := io.ReadAll(h.out)
	if err := h.Wait(); err != nil {
		t.Errorf("the living host ended with %v:\n%s", err, rest)
	}
}

// beHost is the host process: it makes sandboxes with a program in each, says so,
// and holds them until its stdin ends.
func beHost(t *testing.T, state string) {
	d := newDriver(t, state)
	for i := range hosted {
		plan := planFor(t, d, fmt.Sprintf("host-%d-%d", os.Getpid(), i))
		m, err := d.Create(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		_, g, err := startIn(t.Context(), m, plan, guest.Command{Args: []string{"/bin/sleep", "600"}}, guest.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { // they live to the end
			if _, err := g.Stat(t.Context(), sandbox.Home); err != nil {
				t.Errorf("sandbox %d does not answer any more: %v", i, err)
			}
			if err := m.Destroy(t.Context()); err != nil {
				t.Errorf("Destroy: %v", err)
			}
			_ = g.Close()
		}()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// planFor makes a plan with default limits.
func planFor(t testing.TB, d *Driver, id string) driver.Plan {
	t.Helper()
	return planOf(t, d, imagetest.Host(t), id)
}

func planOf(t testing.TB, d *Driver, shown image.Template, id string) driver.Plan {
	t.Helper()
	report, err := d.Probe(t.Context(), shown)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), shown, report, id)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
