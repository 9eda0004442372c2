//go:build linux

package qemu

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image/imagetest"
	"pinfold/test/kernels/vm"
)

// hostTemplate is looked at once for all tests.
// options are for a driver that boots Debian's kernel, with a directory of its own.
func options(t testing.TB) Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes virtual machines")
	}
	if missing := vm.Missing(); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	kernel, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, warden := agenttest.Bytes(t), agenttest.Program(t, agenttest.Warden)
	dir := t.TempDir()
	return Options{
		Kernel: kernel, Modules: vm.Modules(kernel), StateDir: filepath.Join(dir, "state"), blocks: filepath.Join(dir, "blocks"),
		CacheDir: vm.Machines(),
		Agent:    func() ([]byte, error) { return agent, nil }, Warden: func() ([]byte, error) { return warden, nil },
		kvm: "-", // see TestKVM
	}
}

// open opens a driver for one test.
func open(t testing.TB, o Options) *Driver {
	t.Helper()
	d := New(o)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

// TestConformance holds the driver to the contract.
func TestConformance(t *testing.T) {
	o := options(t)
	d := open(t, o)
	made(t, d)
	conform(t, d, o, imagetest.Host)
}

// forget drops all bases but some.
func (d *Driver) forget(but map[baseKey]*base) {
	d.bases.all.Wait() // for those that are being made
	d.bases.mu.Lock()
	defer d.bases.mu.Unlock()
	for key, one := range d.bases.known {
		if but[key] != one {
			one.drop()
		}
	}
}

// Where QEMU makes no snapshots every machine boots.
func TestBooted(t *testing.T) {
	o := options(t)
	o.cold = true
	if got := says(t, made(t, open(t, o)), "echo $((6 * 7)); uname -r"); got != "42\n"+kernelRelease(o)+"\n" {
		t.Errorf("it says %q", got)
	}
}

func kernelRelease(o Options) string { return filepath.Base(o.Modules) }

// A base that is of no use any more is made again, and those that are not used go.
func TestBases(t *testing.T) {
	d := open(t, options(t))
	made(t, d)
	d.bases.all.Wait() // nobody stores any
	var one *base
	for _, b := range d.bases.known {
		one = b
	}
	if one == nil || one.users != 0 {
		t.Fatalf("%+v", one)
	}
	broken, err := os.CreateTemp(t.TempDir(), "state")
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	good := one.saved.state
	one.saved.state = broken // as one of another QEMU
	if got := says(t, made(t, d), "echo again"); got != "again\n" {
		t.Errorf("it says %q", got)
	}
	if d.bases.known[one.key] == one {
		t.Error("a base from which nothing goes on is kept")
	}
	_ = good.Close()
	for i := range maxBases + 2 {
		d.bases.keep(&making{done: make(chan struct{}), base: &base{}}, baseKey{shape: shape{memory: int64(i)}})
	}
	if n := len(d.bases.known); n != maxBases {
		t.Errorf("%d bases are kept", n)
	}
}

// What is asked for a second time goes on from a machine with the sandbox in it.
func TestSandboxSnapshot(t *testing.T) {
	d := open(t, options(t))
	for i := range 4 {
		begun := time.Now()
		m := made(t, d)
		took := time.Since(begun)
		if with := m.process.greeting != nil; with != (i > 0) {
			t.Errorf("%d: from a machine with a sandbox in it: %v", i, with)
		}
		begun = time.Now()
		if got := says(t, m, "echo ok"); got != "ok\n" {
			t.Errorf("%d: %q", i, got)
		}
		t.Logf("made in %s, answered in %s", took, time.Since(begun))
	}
}
