//go:build linux

package drivers

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/docker"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/gvisor"
	"pinfold/internal/driver/native"
	"pinfold/internal/driver/process"
	"pinfold/internal/driver/qemu"
	"pinfold/internal/engine"
	"pinfold/test/dockerengine"
	"pinfold/test/kernels/vm"
)

// dockerImage is the name of the image that ladder makes, and imagePackages are what is in
// it: the languages' interpreters and compilers, but for the two that would make it three
// times as large.
const dockerImage = "pinfold-ladder"

var imagePackages = []string{
	"bash", "dash", "coreutils", "sed", "grep", "python3-minimal", "libpython3-stdlib", "perl", "ruby", "php-cli", "lua5.4", "tcl", "gcc", "g++", "libc6-dev", "r-base-core",
}

// ladder is an engine with all drivers, each with the real thing behind it.
func ladder(t *testing.T) *engine.Engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers, gVisor and virtual machines are root's")
	}
	runsc := drivertest.Runsc(t)
	for _, missing := range []string{dockerengine.Missing(dockerengine.Docker), vm.Missing()} {
		if missing != "" {
			drivertest.Missing(t, "%s", missing)
		}
	}
	kernel, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, warden := agenttest.Bytes(t), agenttest.Program(t, agenttest.Warden)
	open := func() ([]byte, error) { return agent, nil }
	state := t.TempDir()
	containers := startDocker(t)
	e := newEngine(nil,
		native.New(native.Options{StateDir: filepath.Join(state, "native"), Agent: open}),
		process.New(process.Options{Agent: open}),
		containers(open),
		gvisor.New(gvisor.Options{Runsc: runsc, Agent: open, Blocks: filepath.Join(state, "blocks")}),
		qemu.New(qemu.Options{
			Kernel: kernel, Modules: vm.Modules(kernel), CacheDir: vm.Machines(), StateDir: filepath.Join(state, "qemu"),
			Agent: open, Warden: func() ([]byte, error) { return warden, nil },
		}))
	t.Cleanup(func() { closed(t, e) })
	return e
}

// startDocker starts an engine with an image, and returns what makes the driver.
func startDocker(t *testing.T) func(agent func() ([]byte, error)) driver.Driver {
	t.Helper()
	d, err := dockerengine.New(dockerengine.Docker)
	if d != nil {
		t.Cleanup(d.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := d.HostImage(ctx, dockerImage, imagePackages, []string{"/usr/bin/node"}); err != nil {
		t.Fatal(err)
	}
	state := d.StateDir(t)
	return func(agent func() ([]byte, error)) driver.Driver {
		return docker.New(docker.Options{Engine: d.Address(), Image: dockerImage, StateDir: state, Agent: agent})
	}
}
