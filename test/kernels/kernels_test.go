package kernels

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/test/kernels/vm"
)

// suite is a package whose tests run in the machine.
type suite struct {
	name     string
	pkg      string
	args     []string
	env      []string
	programs map[string]string // where the guest has them → the package
	user     bool              // as an ordinary user instead of root
	delegate bool              // with a cgroup of its own
}

const (
	cgroupRoot = "PINFOLD_TEST_CGROUP_BASE=/sys/fs/cgroup"
	cgroupPkg  = "pinfold/internal/linux/cgroup"
)

// The native driver's promises, on a host with cgroup v2.
const (
	nativePkg   = "pinfold/internal/driver/native"
	programsDir = "/test/programs"
)

var (
	nativeArgs     = []string{"-test.run=^TestConformance$"}
	forkArgs       = []string{"-test.run=^Test(Fork|Asleep|Wake|WakeIntoFullMachines|WakeThatFails)$"}
	nativeEnv      = []string{"PINFOLD_TEST_PROGRAMS=" + programsDir}
	nativePrograms = map[string]string{
		programsDir + "/pinfold-agent": "pinfold/cmd/pinfold-agent",
		programsDir + "/guestprobe":    "pinfold/internal/driver/drivertest/guestprobe",
	}
)

var suites = []suite{
	{name: "native as root", pkg: nativePkg, args: nativeArgs, env: nativeEnv, programs: nativePrograms},
	{name: "forks as root", pkg: nativePkg, args: forkArgs, env: nativeEnv, programs: nativePrograms},
	{name: "native as user in a delegated scope", pkg: nativePkg, args: nativeArgs, env: nativeEnv, programs: nativePrograms, delegate: true, user: true},
	{name: "native as user without cgroups", pkg: nativePkg, args: nativeArgs, env: nativeEnv, programs: nativePrograms, user: true},
	{name: "cgroup as root", pkg: cgroupPkg, env: []string{cgroupRoot}},
	{name: "cgroup as root in a delegated scope", pkg: cgroupPkg, env: []string{cgroupRoot + "/" + vm.DelegatedScope}, delegate: true},
	{name: "cgroup as user in a delegated scope", pkg: cgroupPkg, env: []string{cgroupRoot + "/" + vm.DelegatedScope}, delegate: true, user: true},
}

// The guest has a shell and Python in /usr, so that a suite can start programs.
func TestKernels(t *testing.T) {
	if missing := vm.Missing(); missing != "" {
		if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // emulation, beside whatever else the machine does
	defer cancel()
	kernel, err := vm.Kernel(ctx)
	if err != nil {
		t.Fatalf("no kernel: %v", err)
	}
	image, jobs := build(t)
	results := map[string]*result{}
	began := time.Now()
	m := vm.Machine{Kernel: kernel, Image: image, MemoryMiB: 1024, CPUs: 2}
	err = m.Run(ctx, jobs, func(e vm.Event) {
		switch e.Kind {
		case vm.EventStart:
			if len(results) == 0 {
				t.Logf("%s: first job after %v", filepath.Base(kernel), time.Since(began).Round(time.Millisecond))
			}
			results[e.Job] = &result{}
		case vm.EventOutput:
			results[e.Job].output.Write(e.Output)
		case vm.EventExit:
			results[e.Job].exit = &e
		}
	})
	for _, j := range jobs {
		t.Run(j.Name, func(t *testing.T) { results[j.Name].check(t) })
	}
	if err != nil {
		t.Fatalf("the machine: %v", err)
	}
	t.Logf("off after %v", time.Since(began).Round(time.Millisecond))
}

// build compiles what the machine needs.
func build(t *testing.T) (*vm.Image, []vm.Job) {
	t.Helper()
	dir := t.TempDir()
	image := vm.NewImage()
	built := map[string]bool{}
	add := func(name, pkg string, compile ...string) {
		t.Helper()
		if built[name] {
			return
		}
		built[name] = true
		bin := filepath.Join(dir, filepath.Base(name))
		compile = append(compile, "-trimpath", "-ldflags=-s -w", "-o", bin, pkg)
		cmd := exec.CommandContext(t.Context(), "go", compile...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		if err := image.Copy(name, bin); err != nil {
			t.Fatal(err)
		}
	}
	add("/init", "pinfold/test/kernels/init", "build")
	if err := image.AddBusybox(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := image.AddPython(); err != nil {
		t.Fatal(err)
	}
	// That the guest is fit for sandboxes, said in the form of a test, as check
	// wants it: Python, a shell, and a root that pivot_root can leave.
	const program = `import json, random, subprocess
print(subprocess.getoutput("""unshare -Urm sh -c '
	mount -t tmpfs none /mnt && cd /mnt && mkdir old && pivot_root . old && old/usr/bin/busybox echo "--- PASS: userland"'"""))`
	jobs := []vm.Job{{Name: "userland", Path: "/usr/bin/python3", Args: []string{"-c", program}, Timeout: time.Minute, UID: vm.User}}
	for _, s := range suites {
		bin := "/test/" + strings.ReplaceAll(s.pkg, "/", "-") + ".test"
		add(bin, s.pkg, "test", "-c")
		for name, pkg := range s.programs {
			add(name, pkg, "build")
		}
		j := vm.Job{
			Name: s.name, Path: bin, Args: append([]string{"-test.v", "-test.timeout=300s"}, s.args...),
			Env: append([]string{"PINFOLD_TEST_ALL=1"}, s.env...), Delegate: s.delegate, Timeout: 310 * time.Second,
		}
		if s.user {
			j.UID = vm.User
		}
		jobs = append(jobs, j)
	}
	return image, jobs
}

// result is what one job said and how it ended.
type result struct {
	output bytes.Buffer
	exit   *vm.Event
}

// check fails unless the job succeeded, skipped nothing and left nothing.
func (r *result) check(t *testing.T) {
	if r == nil {
		t.Fatal("did not start")
	}
	if r.exit == nil {
		t.Fatalf("did not end; output:\n%s", r.output.Bytes())
	}
	passed := 0
	for s := bufio.NewScanner(bytes.NewReader(r.output.Bytes())); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if strings.HasPrefix(line, "--- PASS: ") {
			passed++
		}
		if strings.HasPrefix(line, "--- SKIP: ") {
			t.Errorf("skipped in the machine: %s", line)
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
