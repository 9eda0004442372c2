//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/config"
	"pinfold/internal/driver/drivertest"
	"pinfold/test/kernels/vm"
	"pinfold/test/ledger"
)

// found is where a runsc is, and a kernel for virtual machines, or the test ends.
func found(t *testing.T) (runsc, kernel string) {
	t.Helper()
	runsc = drivertest.Runsc(t)
	if missing := vm.Missing(); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	kernel, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return runsc, kernel
}

// A run without a server has the isolation that it asks for, with what is found on this
// host; what is not there is refused with what helps. (Machines are made in TestReadme.)
func TestRungs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has the upper rungs")
	}
	ledger.Check(t)
	runsc, _ := found(t)
	bin := pinfold(t)
	t.Setenv(config.RunscEnv, runsc)
	for _, c := range []struct{ flag, want string }{
		{"--isolation=namespace", "native"}, {"--isolation=kernel", "gvisor"}, {"--isolation=container", "gvisor"}, {"--driver=gvisor", "gvisor"},
	} {
		if r, _ := run(t, bin, "sh", "echo $((6 * 7))", c.flag); r.Isolation.Driver != c.want || r.Stdout != "42\n" {
			t.Errorf("%s: %s printed %q: %+v", c.flag, r.Isolation.Driver, r.Stdout, r.Cause)
		}
	}
	gone := filepath.Join(t.TempDir(), "gone")
	t.Setenv(config.RunscEnv, gone)
	t.Setenv(config.KernelEnv, gone)
	for _, c := range []struct {
		flag string
		code int
		says []string
	}{
		{"--isolation=kernel", 126, []string{"there is no runsc", "gvisor.dev/gvisor/runsc@", "$" + config.RunscEnv}},
		{"--isolation=vm", 126, []string{gone, "linux-image-cloud-amd64"}},
		{"--driver=gvisor", 126, []string{"there is no runsc"}},
		{"--driver=gvisr", 125, []string{"the drivers here are auto, native, process, gvisor, qemu"}},
	} {
		o := start(t, bin, "echo ran", "run", c.flag, "--language", "sh", "-")
		if o.code != c.code || o.stdout != "" {
			t.Errorf("%s: %+v", c.flag, o)
		}
		for _, said := range c.says {
			if !strings.Contains(o.stderr, said) {
				t.Errorf("%s does not say %q: %s", c.flag, said, o.stderr)
			}
		}
	}
}
