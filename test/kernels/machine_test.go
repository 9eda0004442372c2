package kernels

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/kernels/vm"
	"pinfold/test/ledger"
)

// suite is a package whose tests run in a machine.
type suite struct {
	name     string
	pkg      string
	args     []string
	env      []string
	programs []string // packages that the tests need built, in programsDir
	beside   string   // a directory of the checkout that the tests read
	user     bool     // as an ordinary user instead of root
	delegate bool     // with a cgroup of its own
	timeout  time.Duration
	long     bool // with make test-machines only: beside other suites it shows little, and takes long
}

// guest is a machine and what runs in it.
type guest struct {
	arch   string
	debian *vm.Debian // without one, Debian's kernel for the build machine, with little more than busybox and Python
	suites []suite
	memory int // MiB
}

// Where the guest has what it needs.
const (
	programsDir = vm.TestsDir + "/programs"
	checkoutDir = vm.TestsDir + "/checkout"
)

// run boots the machine and makes a subtest of each suite, and in it of each
// test. "go test -run 'TestX/suite'" has only that suite in the machine.
func (g guest) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // emulation, beside whatever else the machine does
	defer cancel()
	m := vm.Machine{Arch: g.arch, MemoryMiB: g.memory, CPUs: 2}
	b := builder{T: t, arch: g.arch, built: map[string]bool{}, dir: t.TempDir()}
	var first []vm.Job
	began := time.Now()
	b.image = vm.NewImage()
	m.Image = b.image
	if g.debian == nil {
		first = b.small(ctx, &m)
	} else {
		b.system(ctx, &m, *g.debian)
	}
	jobs := slices.Concat(first, b.jobs(chosen(t, g.suites, 1)))
	t.Logf("built after %v", time.Since(began).Round(time.Second))
	began = time.Now()
	results := map[string]*result{}
	err := m.Run(ctx, jobs, func(e vm.Event) {
		switch e.Kind {
		case vm.EventStart:
			if len(results) == 0 {
				t.Logf("%s: first job after %v", filepath.Base(m.Kernel), time.Since(began).Round(time.Millisecond))
			}
			results[e.Job] = &result{}
		case vm.EventOutput:
			results[e.Job].output.Write(e.Output)
			for line := range strings.Lines(string(e.Output)) { // as it goes on, for whoever waits
				if strings.HasPrefix(strings.TrimSpace(line), "--- ") {
					t.Logf("%s: %s", e.Job, strings.TrimRight(line, "\n"))
				}
			}
		case vm.EventExit:
			t.Logf("%s: exit status %d %s after %v", e.Job, e.Exit, e.Error, e.Took.Round(time.Millisecond))
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

// chosen are the suites that a part of -run means, without the long ones unless those were
// asked for.
func chosen(t *testing.T, all []suite, part int) []suite {
	t.Helper()
	if !wholeSystems() {
		all = slices.DeleteFunc(slices.Clone(all), func(s suite) bool { return s.long })
	}
	parts := strings.Split(flag.Lookup("test.run").Value.String(), "/")
	if len(parts) <= part {
		return all
	}
	pattern, err := regexp.Compile(strings.ReplaceAll(parts[part], " ", "_"))
	if err != nil {
		t.Fatal(err)
	}
	var some []suite
	for _, s := range all {
		if pattern.MatchString(strings.ReplaceAll(s.name, " ", "_")) {
			some = append(some, s)
		}
	}
	return some
}

// builder puts into an image what the suites need.
type builder struct {
	*testing.T
	arch  string
	image *vm.Image
	built map[string]bool
	dir   string
}

// compile builds a package and puts the program into the image.
func (b *builder) compile(name, pkg string, how ...string) {
	b.Helper()
	if b.built[name] {
		return
	}
	b.built[name] = true
	bin := filepath.Join(b.dir, strings.ReplaceAll(name, "/", "-"))
	b.compileTo(bin, pkg, how...)
	if err := b.image.Copy(name, bin); err != nil {
		b.Fatal(err)
	}
}

func (b *builder) compileTo(bin, pkg string, how ...string) {
	b.Helper()
	args := slices.Concat(how, []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin, pkg})
	cmd := exec.CommandContext(b.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+b.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// jobs are the suites as jobs, once the image has their programs and what lies
// beside their source.
func (b *builder) jobs(suites []suite) []vm.Job {
	var jobs []vm.Job
	for _, s := range suites {
		bin := vm.TestsDir + "/" + strings.ReplaceAll(s.pkg, "/", "-") + ".test"
		b.compile(bin, s.pkg, "test", "-c")
		for _, pkg := range s.programs {
			b.compile(programsDir+"/"+filepath.Base(pkg), pkg, "build")
		}
		if s.beside != "" {
			b.tree(checkoutDir+"/"+s.beside, filepath.Join("../..", s.beside))
		}
		timeout := s.timeout
		if timeout == 0 {
			timeout = 20 * time.Minute // emulated, beside whatever else this machine does
		}
		j := vm.Job{
			Name: s.name, Path: bin, Args: append([]string{"-test.v", "-test.timeout=" + timeout.String()}, s.args...), Dir: b.source(s.pkg),
			Env:      append([]string{"PINFOLD_TEST_ALL=1", ledger.EmulatedEnv + "=1", agenttest.DirEnv + "=" + programsDir}, s.env...),
			Delegate: s.delegate, Timeout: timeout + 10*time.Second,
		}
		if s.user {
			j.UID = vm.User
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// source copies what lies beside a package's source and returns its directory.
func (b *builder) source(pkg string) string {
	b.Helper()
	rel := strings.TrimPrefix(pkg, "pinfold/")
	dir := checkoutDir + "/" + rel
	data := filepath.Join("../..", rel, "testdata")
	if _, err := os.Stat(data); err == nil {
		b.tree(dir+"/testdata", data)
	} else {
		b.image.Content(dir+"/.keep", 0o644, "")
	}
	return dir
}

func (b *builder) tree(name, host string) {
	b.Helper()
	if err := b.image.CopyTree(name, host, func(string) bool { return false }); err != nil {
		b.Fatal(err)
	}
}

// system makes a whole Debian, with a checkout in which make build has been done.
func (b *builder) system(ctx context.Context, m *vm.Machine, d vm.Debian) {
	b.Helper()
	tree, err := d.Make(ctx)
	if err != nil {
		b.Fatalf("no root file system: %v", err)
	}
	m.Disk, m.Kernel = tree.Disk, tree.Kernel
	b.compile(vm.TestsDir+"/init", "pinfold/test/kernels/init", "build")
	b.tree(checkoutDir+"/packaging", "../../packaging")
	if err := b.image.Copy(checkoutDir+"/docs/server.md", "../../docs/server.md"); err != nil {
		b.Fatal(err)
	}
	agent, warden := filepath.Join(b.dir, "agent"), filepath.Join(b.dir, "warden")
	b.compileTo(agent, agenttest.Agent, "build")
	b.compileTo(warden, agenttest.Warden, "build")
	// As make build does, but not in the checkout that this is.
	file := agenttest.Overlay(b, map[string]string{"internal/agentbin/pinfold-agent": agent, "internal/agentbin/pinfold-warden": warden})
	b.compile(checkoutDir+"/bin/pinfold", "pinfold/cmd/pinfold", "build", "-tags=embedagent", "-overlay="+file)
}

// small makes a system in memory: little more than busybox and Python.
func (b *builder) small(ctx context.Context, m *vm.Machine) []vm.Job {
	b.Helper()
	kernel, err := vm.Kernel(ctx)
	if err != nil {
		b.Fatalf("no kernel: %v", err)
	}
	m.Kernel = kernel
	b.compile("/init", "pinfold/test/kernels/init", "build")
	if err := errors.Join(m.Image.AddBusybox(ctx), m.Image.AddPython()); err != nil {
		b.Fatal(err)
	}
	// That the guest is fit for sandboxes, said in the form of a test, as check
	// wants it: Python, a shell, and a root that pivot_root can leave.
	const program = `import json, random, subprocess
print(subprocess.getoutput("""unshare -Urm sh -c '
	mount -t tmpfs none /mnt && cd /mnt && mkdir old && pivot_root . old && old/usr/bin/busybox echo "--- PASS: userland"'"""))`
	return []vm.Job{{Name: "userland", Path: "/usr/bin/python3", Args: []string{"-c", program}, Timeout: time.Minute, UID: vm.User}}
}
