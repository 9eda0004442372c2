package kernels

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/test/kernels/vm"
)

// The native driver's promises, on a host with cgroup v2.
const (
	nativePkg  = "pinfold/internal/driver/native"
	cgroupPkg  = "pinfold/internal/linux/cgroup"
	cgroupRoot = "PINFOLD_TEST_CGROUP_BASE=/sys/fs/cgroup"
)

// tooMuch is what an emulated machine is too slow for: 32 sandboxes at once, where the
// agents of some are given up before their turn comes, and filling a disk's table of files.
const tooMuch = "^TestConformance$/^life$/^32_at_once$|^TestConformance$/^snapshot$/^a_full_disk$"

var (
	nativeArgs     = []string{"-test.run=^TestConformance$", "-test.skip=" + tooMuch}
	noGroupArgs    = []string{"-test.run=^TestConformance$", "-test.skip=" + tooMuch + "|^TestConformance$/^(pause|snapshot)$"} // what has no group cannot be frozen
	forkArgs       = []string{"-test.run=^Test(Fork|InitStub|InitStubBecomesAgent|AgentStartsInFullMachines|AgentThatDoesNotStart)$"}
	cgroupUserArgs = []string{"-test.skip=^TestKillLiftsLimits$"} // only root can keep a process from being killed
	nativePrograms = []string{agenttest.Agent, drivertest.Probe}
)

var suites = []suite{
	{name: "native as root", pkg: nativePkg, args: nativeArgs, programs: nativePrograms, long: true}, // Debian 13 has it, too
	{name: "forks as root", pkg: nativePkg, args: forkArgs, programs: nativePrograms},
	{name: "native as user in a delegated scope", pkg: nativePkg, args: nativeArgs, programs: nativePrograms, delegate: true, user: true, long: true}, // as before
	{name: "native as user without cgroups", pkg: nativePkg, args: noGroupArgs, programs: nativePrograms, user: true, long: true},                     // the build machine has it
	{name: "cgroup as root", pkg: cgroupPkg, env: []string{cgroupRoot}},
	{name: "cgroup as root in a delegated scope", pkg: cgroupPkg, env: []string{cgroupRoot + "/" + vm.DelegatedScope}, delegate: true},
	{name: "cgroup as user in a delegated scope", pkg: cgroupPkg, args: cgroupUserArgs, env: []string{cgroupRoot + "/" + vm.DelegatedScope}, delegate: true, user: true},
}

// TestKernels is cgroup version 2 on the kernel of the build machine's Debian.
// The guest has a shell and Python in /usr, so that a suite can start programs.
func TestKernels(t *testing.T) {
	need(t, vm.Missing())
	guest{arch: "amd64", memory: 1024, suites: suites}.run(t)
}

// need skips where something is missing, unless nothing may be.
func need(t *testing.T, missing string) {
	t.Helper()
	if missing == "" {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// wholeSystems says whether somebody asked for everything in whole systems.
func wholeSystems() bool { return os.Getenv("PINFOLD_TEST_MACHINES") == "1" }

// onRequest leaves out what builds whole systems, unless it was asked for. CI asks for
// those that are the same from one day to the next.
func onRequest(t *testing.T, inCI bool) {
	t.Helper()
	if !wholeSystems() && (!inCI || os.Getenv("CI") != "true") {
		t.Skip("whole systems take many minutes: make test-machines")
	}
}

// result is what one job said and how it ended.
type result struct {
	output bytes.Buffer
	exit   *vm.Event
}

// check makes a subtest of each test of the job, and fails unless the job
// succeeded, skipped nothing and left nothing.
func (r *result) check(t *testing.T) {
	if r == nil {
		t.Fatal("did not start")
	}
	if r.exit == nil {
		t.Fatalf("did not end; output:\n%s", r.output.Bytes())
	}
	passed, lines := 0, strings.Split(r.output.String(), "\n")
	for n, line := range lines {
		outcome, name, found := strings.Cut(strings.TrimSpace(line), ": ")
		name, _, _ = strings.Cut(name, " (")
		if !found || outcome != "--- SKIP" && strings.Contains(name, "/") {
			continue // a part of a test, which is told with it
		}
		switch outcome {
		case "--- PASS":
			passed++
			t.Run(name, func(*testing.T) {})
		case "--- SKIP":
			t.Run(name, func(t *testing.T) {
				t.Errorf("skipped in the machine: %s", strings.Join(lines[n:min(n+2, len(lines))], ""))
			})
		case "--- FAIL":
			t.Run(name, func(t *testing.T) { t.Error("failed in the machine") })
		}
	}
	if passed == 0 {
		t.Error("no test passed")
	}
	if r.exit.Exit != 0 || r.exit.Error != "" {
		t.Errorf("exit status %d: %s", r.exit.Exit, r.exit.Error)
	}
	if len(r.exit.Left) > 0 {
		t.Errorf("left cgroups: %v", r.exit.Left)
	}
	summary := fmt.Sprintf("%d tests passed in %v", passed, r.exit.Took.Round(time.Millisecond))
	if t.Failed() {
		summary += "; output:\n" + r.output.String()
	}
	t.Log(summary)
}
