//go:build linux

package drivers

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/docker"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/gvisor"
	"pinfold/internal/driver/native"
	"pinfold/internal/driver/qemu"
	"pinfold/internal/engine"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/runs"
	"pinfold/internal/filetree"
	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/internal/template"
	"pinfold/sandbox"
	"pinfold/test/dockerengine"
	"pinfold/test/kernels/vm"
	"pinfold/test/ledger"
	"pinfold/test/smallimage"
)

// imageDrivers make sandboxes of images; the first is what the others are compared with.
var imageDrivers = []string{native.Name, docker.Name, gvisor.Name, qemu.Name}

// inImage are programs that see what an image says and holds.
var inImage = map[string]struct {
	language, code string
	limits         sandbox.Limits
	ends           string // its cause
}{
	"user":              {"python", "import os, pwd; print(os.getuid(), os.getgid(), set(os.getgroups()) - {os.getgid()}, pwd.getpwuid(os.getuid()), os.getcwd(), os.umask(0))", sandbox.Limits{}, "exited"},
	"environment":       {"python", "import os\nfor k in sorted(os.environ): print(k, os.environ[k])", sandbox.Limits{}, "exited"},
	"programs":          {"sh", "hello; command -v hello; command -v sh; command -v tar || echo no tar", sandbox.Limits{}, "exited"},
	"files":             {"python", "import sys\nprint(open('/etc/said').read(), open('/app/data.txt').read(), sys.version, sys.executable)", sandbox.Limits{}, "exited"},
	"what is read-only": {"python", "import os\nfor p in '/x', '/app/x', '/usr/x', '/run/x', '/etc/said', '/opt/bin/hello':\n  try: open(p, 'a'); print(p)\n  except OSError: print('refused')", sandbox.Limits{}, "exited"},
	"what is writable":  {"python", "import os\nfor p in os.environ['HOME'], '/tmp', '/var/tmp', '/dev/shm':\n  open(p + '/x', 'w').write('x'); print(p, os.listdir(p))", sandbox.Limits{}, "exited"},
	"what is hidden":    {"python", "import os\nprint(os.path.exists('/tmp/of-the-image'), os.path.isdir('/proc/self'))", sandbox.Limits{}, "exited"},
	"home":              {"python", "import os, stat\nassert open('of/the-image').read() == 'in its home', 'it is not seen'\nopen('of/the-image', 'a').write(' and more')\nprint(open('of/the-image').read(), sorted(os.listdir()), os.stat('of').st_uid, stat.filemode(os.stat('of/the-image').st_mode))", sandbox.Limits{}, "exited"},
	"modules":           {"python", "import json, ssl, sqlite3, subprocess\nprint(subprocess.run(['hello'], capture_output=True, text=True).stdout, json.dumps([1]))", sandbox.Limits{MemoryBytes: 512 << 20}, "exited"},
	"exit status":       {"sh", "exit 3", sandbox.Limits{}, "exited"},
	"signal":            {"sh", "kill -SEGV $$", sandbox.Limits{}, "signaled"},
	"memory":            {"python", "a = []\nwhile 1: a.append(bytearray(1 << 20))", sandbox.Limits{MemoryBytes: 100 << 20}, "memory"},
	"wall time":         {"python", "import time; time.sleep(60)", sandbox.Limits{WallTimeMS: 1500}, "wall_time"},
	"disk":              {"python", "open('/tmp/x', 'wb').write(b'x' * (50 << 20))", sandbox.Limits{DiskBytes: 20 << 20}, "disk"},
	"inodes":            {"python", "for i in range(2000): open(f'/tmp/{i}', 'w')", sandbox.Limits{Inodes: 500}, "inodes"},
}

// sameImage makes an image with a user, an environment, a directory to work in, programs and
// a file that a higher layer hides.
func sameImage(t *testing.T) (func(string) (image.Template, error), execution.Homes) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "templates")
	config := template.Config{User: "app", WorkingDir: "/app", Env: []string{"PATH=/opt/bin:/usr/bin:/bin", "COLOR=red", "HOME=/elsewhere"}}
	smallimage.Configured(t, dir, "same", "of the image", config, map[string]string{
		"app/data.txt": "data", "opt/bin/hello": "#!/bin/sh\necho hello of the image\n", "tmp/of-the-image": "", "srv/app/of/the-image": "in its home",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/srv/app:/bin/sh\n", "etc/group": "app:x:1235:\n",
	})
	var programs []string
	for _, l := range language.Table() {
		for _, p := range l.Programs {
			programs = append(programs, p.Candidates...)
		}
	}
	s, ok, err := template.Look(dir, template.Limits{})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	homes := func(ctx context.Context, shown image.Template, place string, w *filetree.Writer) error {
		u, err := s.Use(shown.ID)
		if err != nil {
			return err
		}
		defer u.Close()
		return u.WriteHome(ctx, shown.User.Home, place, w)
	}
	return func(name string) (image.Template, error) { return s.Resolve(name, programs) }, homes
}

// imageEngine has all drivers that make sandboxes of images.
func imageEngine(t *testing.T) *engine.Engine {
	t.Helper()
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "containers, gVisor and virtual machines are root's: run the tests as root")
	}
	runsc, err := exec.LookPath(cmp.Or(os.Getenv("PINFOLD_RUNSC"), "runsc"))
	if err != nil {
		drivertest.Missing(t, "there is no runsc: %v", err)
	}
	for _, missing := range []string{dockerengine.Missing(dockerengine.Docker), vm.Missing()} {
		if missing != "" {
			drivertest.Missing(t, "%s", missing)
		}
	}
	kernel, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dockerd, err := dockerengine.New(dockerengine.Docker)
	if dockerd != nil {
		t.Cleanup(dockerd.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	agent, warden := agenttest.Bytes(t), agenttest.Program(t, agenttest.Warden)
	open := func() ([]byte, error) { return agent, nil }
	state, machines := filepath.Join(t.TempDir(), "state"), dockerd.StateDir(t)
	ledger.Check(t, machines)
	same, homes := sameImage(t)
	e := engine.New(engine.Options{
		Host: os.DirFS("/"), Template: same, Home: homes, Drivers: []driver.Driver{
			native.New(native.Options{StateDir: state, Agent: open}),
			// Of images the configured one has no part in anything.
			docker.New(docker.Options{Engine: dockerd.Address(), Image: "none", StateDir: machines, Agent: open}),
			gvisor.New(gvisor.Options{Runsc: runsc, Agent: open, Blocks: filepath.Join(state, "blocks")}),
			qemu.New(qemu.Options{
				Kernel: kernel, Modules: vm.Modules(kernel), CacheDir: vm.Machines(), StateDir: filepath.Join(state, "qemu"),
				Agent: open, Warden: func() ([]byte, error) { return warden, nil },
			}),
		},
	})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// A program in an image gives the same results, and ends for the same reason, whatever made
// its sandbox: the user, the environment, the programs and the files are the image's.
func TestSameResultsInAnImage(t *testing.T) {
	e := imageEngine(t)
	run := func(t *testing.T, driver, language, code string, l sandbox.Limits) (said, error) {
		t.Helper()
		l.WallTimeMS, l.CPUTimeMS = cmp.Or(l.WallTimeMS, patience), cmp.Or(l.CPUTimeMS, patience) // a machine may be emulated
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience*time.Millisecond)
		defer cancel()
		r, err := e.Run(ctx, runs.Request{Spec: sandbox.Spec{Template: "same", Driver: driver, Language: language, Code: code, Limits: l}})
		if err != nil {
			return said{}, err
		}
		if r.Isolation.Driver != driver {
			t.Errorf("%s was made by %s", driver, r.Isolation.Driver)
		}
		s := said{Status: string(r.Status), Signal: r.Signal, Cause: string(r.Cause.Kind), Exit: -1}
		if r.ExitCode != nil {
			s.Exit = *r.ExitCode
		}
		if r.Status == sandbox.StatusSucceeded {
			s.Stdout = r.Stdout
		}
		return s, nil
	}
	for name, c := range inImage {
		t.Run(name, func(t *testing.T) {
			first, err := run(t, imageDrivers[0], c.language, c.code, c.limits)
			if err != nil {
				t.Fatal(err)
			}
			if first.Cause != c.ends {
				t.Errorf("%+v", first)
			}
			for _, driver := range imageDrivers[1:] {
				other, err := run(t, driver, c.language, c.code, c.limits)
				if err != nil {
					t.Fatalf("%s: %v", driver, err)
				}
				if diff := gocmp.Diff(first, other); diff != "" {
					t.Errorf("(-%s +%s)\n%s", imageDrivers[0], driver, diff)
				}
			}
		})
	}
	for _, driver := range imageDrivers {
		if _, err := run(t, driver, "ruby", "puts 1", sandbox.Limits{}); err == nil || sandbox.AsError(err).Code != sandbox.CodeLanguageMissing {
			t.Errorf("%s: a language that the image lacks: %v", driver, err)
		}
	}
	t.Run("living", func(t *testing.T) { livesInAnImage(t, e) })
	t.Run("pool", func(t *testing.T) { poolOfAnImage(t, e) })
}

// livesInAnImage sees where commands of living sandboxes start, and what relative names are.
func livesInAnImage(t *testing.T, e *engine.Engine) {
	for _, driver := range imageDrivers {
		sb, err := e.Create(soon(t), "alice", sandbox.Create{Template: "same", Driver: driver, TTLMS: 600_000})
		if err != nil {
			t.Fatalf("%s: %v", driver, err)
		}
		if err := sb.WriteFile(soon(t), "mine", 0o600, 4, strings.NewReader("mine")); err != nil {
			t.Error(err)
		}
		for command, want := range map[string]string{
			"pwd; read x < data.txt; echo $x; read x < ~/mine; echo $x": "/app\ndata\nmine\n",
			"(echo > x) 2>/dev/null || echo read-only":                  "read-only\n",
			"read x < ~/of/the-image || echo $x":                        "in its home\n",
		} {
			p, err := sb.Exec(soon(t), sandbox.Command{Shell: command})
			if err != nil || p.Stdout != want {
				t.Errorf("%s: %q, %v; want %q", driver, p.Stdout, err, want)
			}
		}
		if p, err := sb.Exec(soon(t), sandbox.Command{Shell: "pwd", Dir: "/tmp"}); err != nil || p.Stdout != "/tmp\n" {
			t.Errorf("%s: where it is to start: %q, %v", driver, p.Stdout, err)
		}
		if _, err := sb.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("%s: %v", driver, err)
		}
	}
}

// poolOfAnImage sees interpreters of the image waiting, whatever makes the sandboxes.
func poolOfAnImage(t *testing.T, e *engine.Engine) {
	for _, driver := range imageDrivers {
		if _, err := e.SetPool(soon(t), sandbox.PoolSpec{Name: driver, Template: "same", Driver: driver, Language: "python", Min: 1}); err != nil {
			t.Fatalf("%s: %v", driver, err)
		}
		spec := sandbox.Spec{Template: "same", Driver: driver, Language: "python", Code: "print(open('/etc/said').read(), end='')"}
		for deadline := time.Now().Add(patience * time.Millisecond); ; time.Sleep(50 * time.Millisecond) {
			r, err := e.Run(soon(t), runs.Request{Spec: spec})
			if err != nil || r.Stdout != "of the image\n" {
				t.Fatalf("%s: %+v, %v", driver, r, err)
			}
			if r.Warm {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no run is warm", driver)
			}
		}
		if err := e.RemovePool(soon(t), driver); err != nil {
			t.Error(err)
		}
	}
}
