//go:build linux

package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// cpusFinding is what the report says of processors, where it says what runs machines.
func cpusFinding(t *testing.T, d *Driver) string {
	t.Helper()
	r, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil || r.Blocked != nil {
		t.Fatalf("%v, %+v", err, r.Blocked)
	}
	for _, f := range r.Findings {
		if sandbox.Satisfies(f.Feature, sandbox.FeatureCPUs) {
			return f.Because
		}
	}
	t.Fatalf("nothing is said of processors: %+v", r)
	return ""
}

// counted counts the QEMUs that are started with KVM, and has argv say how.
func counted(o *Options, argv func(launch) []string) *int {
	n := new(int)
	o.argv = func(l launch) []string {
		if l.kvm {
			*n++
			return argv(l)
		}
		return command(l)
	}
	return n
}

// What this host's KVM does decides: machines are run by it where one boots, and emulated
// otherwise, after a trial that is bounded and that there is only one of.
func TestKVM(t *testing.T) {
	if _, err := deviceNumber(kvmDevice); err != nil {
		t.Skipf("this host has none: %v", err)
	}
	o := options(t)
	o.CacheDir = "" // it is booting that is tried
	o.kvm = ""
	n := counted(&o, command)
	d := open(t, o)
	key, err := d.keyOf(t.Context(), imagetest.Host(t), shapeOf(driver.Plan{Limits: sandbox.Limits{}.WithDefaults()}))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	b := d.tryKVM(t.Context(), key)
	took := time.Since(begun)
	kvm, why := d.byKVM()
	t.Logf("by KVM: %v (%s), known after %s", kvm, why, took)
	if b != nil {
		b.saved.close()
	}
	if kvm != (b != nil) || kvm == (why != "") || *n == 0 {
		t.Errorf("%v, %q, %d starts", kvm, why, *n)
	}
	tried := *n
	if b := d.tryKVM(t.Context(), key); b != nil || *n != tried {
		t.Errorf("it is tried again: %d starts", *n)
	}
	if got := says(t, made(t, d), "echo $((6 * 7))"); got != "42\n" {
		t.Errorf("it says %q", got)
	}
	if !kvm && *n != tried {
		t.Errorf("KVM is started %d times after it was seen not to work", *n-tried)
	}
	if said := cpusFinding(t, d); kvm != strings.Contains(said, "by KVM") || kvm == strings.Contains(said, "emulated") || !strings.Contains(said, why) {
		t.Errorf("the report says %q", said)
	}
}

// standIn is emulation where KVM is asked for. It has the file of another device.
func standIn(t *testing.T, argv func(launch) []string) (d *Driver, started *int) {
	t.Helper()
	o := options(t)
	o.CacheDir = "" // it is booting that is tried
	o.kvm, o.trial = "/dev/null", time.Minute
	started = counted(&o, func(l launch) []string {
		l.kvm = false
		return argv(l)
	})
	return open(t, o), started
}

// Where the trial succeeds all machines are run by KVM, and who breaks out of one into QEMU
// has that one device.
func TestKVMThatWorks(t *testing.T) {
	d, started := standIn(t, command)
	m := made(t, d)
	if kvm, why := d.byKVM(); !kvm || why != "" {
		t.Fatalf("%v, %q", kvm, why)
	}
	if got := says(t, m, "echo $((6 * 7))"); got != "42\n" || *started != 3 { // the base, one that went on from it, and this
		t.Errorf("it says %q after %d starts", got, *started)
	}
	if said := cpusFinding(t, d); !strings.Contains(said, "by KVM") {
		t.Errorf("the report says %q", said)
	}
	dev := filepath.Join(procRoot(m), "dev")
	list, err := os.ReadDir(dev)
	if err != nil || len(list) != 1 || list[0].Name() != "kvm" {
		t.Fatalf("QEMU finds %v, %v", list, err)
	}
	info, err := os.Stat(filepath.Join(dev, "kvm"))
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dev, "more"), nil, 0o600); err == nil {
		t.Error("even root can write there")
	}
}

// One that boots, and from whose snapshots nothing goes on, is not used.
func TestKVMThatDoesNotGoOn(t *testing.T) {
	d, started := standIn(t, func(l launch) []string {
		if l.resumes {
			return []string{"qemu-system-x86_64", "--version"}
		}
		return command(l)
	})
	m := made(t, d)
	if kvm, why := d.byKVM(); kvm || why == "" || *started != 2 {
		t.Errorf("%v, %q after %d starts", kvm, why, *started)
	}
	if got := says(t, m, "echo $((6 * 7))"); got != "42\n" {
		t.Errorf("it says %q", got)
	}
	if list, err := os.ReadDir(filepath.Join(procRoot(m), "dev")); err == nil {
		t.Errorf("an emulated one finds devices: %v", list)
	}
}

// procRoot leads to what QEMU sees of the host.
func procRoot(m *machine) string {
	return fmt.Sprintf("/proc/%d/root", m.process.child.PID)
}

// One under which nothing ever runs is given up in time, and machines are emulated.
func TestKVMThatHangs(t *testing.T) {
	o := options(t)
	o.CacheDir = "" // it is booting that is tried
	o.kvm, o.trial = "/dev/null", time.Second
	n := counted(&o, func(l launch) []string {
		l.kvm = false
		return append(command(l), "-S") // it stands still
	})
	d := open(t, o)
	key, err := d.keyOf(t.Context(), imagetest.Host(t), shapeOf(driver.Plan{Limits: sandbox.Limits{}.WithDefaults()}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if b := d.tryKVM(t.Context(), key); b != nil {
			t.Fatal("it is taken for one that works")
		}
	}
	kvm, why := d.byKVM()
	if kvm || !strings.Contains(why, "in 1s") || *n != 1 {
		t.Errorf("%v, %q after %d starts", kvm, why, *n)
	}
	another := open(t, o) // as one in another process
	key, err = another.keyOf(t.Context(), key.disk.template, key.shape)
	if err != nil {
		t.Fatal(err)
	}
	if b := another.tryKVM(t.Context(), key); b != nil || *n != 1 {
		t.Errorf("another tries it again: %d starts", *n)
	}
	if _, again := another.byKVM(); again != why {
		t.Errorf("another says %q", again)
	}
	yet := open(t, o)
	key, err = yet.keyOf(t.Context(), key.disk.template, key.shape)
	if err != nil {
		t.Fatal(err)
	}
	key.qemu.Ino++
	if b := yet.tryKVM(t.Context(), key); b != nil || *n != 2 {
		t.Errorf("with another QEMU it is not tried: %d starts", *n)
	}
}
