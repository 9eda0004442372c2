package docker

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
)

// testImage is the name of the image that the tests make.
const testImage = "pinfold-test"

// packImage packs a few of the host's programs and what they are linked with.
func packImage(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h *tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content)
	}
	for _, dir := range []string{"dev", "etc", "home", "home/user", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "usr/lib", "usr/lib64", "var", "var/tmp"} {
		mode := int64(0o755)
		if dir == "root" {
			mode = 0o700
		}
		add(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}, nil)
	}
	for name, target := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
	}
	add(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"))
	add(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/shadow", Mode: 0o600}, nil)
	done := map[string]bool{}
	file := func(name, from string) {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if !done[name] {
			done[name] = true
			add(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: 0o755}, content)
		}
	}
	pythons, err := filepath.Glob("/usr/lib/python3.[0-9]*/*.py")
	if err != nil || len(pythons) == 0 {
		t.Fatal("there is no Python: ", err)
	}
	for _, pattern := range []string{"encodings/*.py", "collections/*.py", "importlib/*.py", "json/*.py", "re/*.py", "lib-dynload/*.so"} {
		more, _ := filepath.Glob(filepath.Join(filepath.Dir(pythons[0]), pattern))
		pythons = append(pythons, more...)
	}
	for _, p := range pythons {
		file(p, p)
	}
	for _, p := range []string{
		"sh", "cat", "echo", "sleep", "stty", "tty", "test", "true", "env", "ls", "seq", "head",
		"bash", "chmod", "dd", "ln", "mkdir", "mkfifo", "mv", "python3", "rm", "rmdir", "touch", "truncate",
	} {
		path := "/usr/bin/" + p
		file(path, path)
		said, _ := exec.CommandContext(t.Context(), "ldd", path).Output() //nolint:gosec // the names above
		for word := range strings.FieldsSeq(string(said)) {
			if filepath.IsAbs(word) {
				lib := word
				if !strings.HasPrefix(lib, "/usr") {
					lib = "/usr" + lib
				}
				file(lib, word)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stateDir is one whose mounts the tests' Docker engine sees, and a short one.
func stateDir(t *testing.T) string {
	t.Helper()
	return theDaemon.stateDir(t)
}

func (e *testEngine) stateDir(t *testing.T) string {
	t.Helper()
	return e.d.StateDir(t)
}

func open(t *testing.T, where, state string) *Driver {
	t.Helper()
	agent := agenttest.Bytes(t)
	d := New(Options{Engine: where, Image: testImage, StateDir: state, Agent: func() ([]byte, error) { return agent, nil }})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	conform(t, &theDaemon, "create the container") // the engine wants a few MiB
}

func TestConformanceOfPodman(t *testing.T) {
	conform(t, &thePodman, "start the container") // as does its runtime
}

// conform runs the contract's tests. A step of that name fails for want of memory.
func conform(t *testing.T, e *testEngine, step string) { conformOf(t, e, step, nil) }

// conformOf does so with machines of a template.
func conformOf(t *testing.T, e *testEngine, step string, template func(testing.TB) image.Template, groups ...string) {
	where, state := e.address(t), e.stateDir(t)
	drivertest.Run(t, func(t *testing.T) driver.Driver { return open(t, where, state) }, drivertest.Options{
		Template:  template,
		Again:     template != nil || e == &thePodman, // which takes a second for each container
		Groups:    groups,
		Kernel:    true,
		Kept:      true,
		Isolated:  true,
		KillAgent: func(m driver.Machine) error { return unix.Kill(m.(*machine).Agent.PID, unix.SIGKILL) },
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Limits.MemoryBytes = 1 << 10
			return step
		},
		State: []string{state},
	})
	if entries, err := os.ReadDir(state); err != nil || len(entries) > 0 {
		t.Errorf("of machines there are left %v: %v", entries, err)
	}
}
