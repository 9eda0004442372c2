//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// madeOf makes a machine of a template, which the caller destroys.
func madeOf(t *testing.T, d *Driver, shown image.Template) (*machine, error) {
	t.Helper()
	r, err := d.Probe(t.Context(), shown)
	if err != nil {
		return nil, err
	}
	if r.Blocked != nil {
		return nil, r.Blocked
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), shown, r, fmt.Sprintf("t%d", time.Now().UnixNano()%1e12))
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = m.Destroy(context.Background()) }) // once more, after a failure
	return m.(*machine), nil
}

// ofImage has a machine of a template say something.
func ofImage(t *testing.T, d *Driver, shown image.Template, script string) string {
	t.Helper()
	m, err := madeOf(t, d, shown)
	if err != nil {
		t.Fatal(err)
	}
	said := says(t, m, script)
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	return said
}

// TestConformanceOfImages holds machines of an image to the same.
func TestConformanceOfImages(t *testing.T) {
	o := options(t)
	d, shown := open(t, o), imagetest.Image(t)
	ofImage(t, d, shown, "true")
	conform(t, d, o, func(testing.TB) image.Template { return shown }, true)
}

// What is inside is the image's layers, the upper over the lower, with the sandbox's own
// files on top, and nothing of the host's. A second machine of it takes neither another
// disk nor another boot, and machines of another template have nothing of it.
func TestImage(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	script := `
cat /said; ls -d /games 2>&1; ls -d /home /root /image 2>&1; cat /etc/hostname; sed -n 1p /etc/passwd; id -un; cd; pwd
for f in /x /etc/x /bin/x /said; do (echo > $f) 2>&1 | grep -c -e "Read-only" -e "Permission denied"; done
echo mine > /home/user/x && echo mine > /tmp/x && echo mine > /dev/shm/x && cat /home/user/x; python3 -c 'print(6 * 7)'`
	want := `of the upper layer
ls: cannot access '/games': No such file or directory
ls: cannot access '/root': No such file or directory
ls: cannot access '/image': No such file or directory
/home
sandbox
user:x:1000:1000::/home/user:/bin/sh
user
/home/user
1
1
1
1
mine
42
`
	for i := range 3 {
		if out := ofImage(t, d, shown, script); out != want {
			t.Errorf("%d, inside:\n%s\nwant\n%s", i, out, want)
		}
	}
	if n, disks := len(d.bases.known), len(d.host.disk.known); n != 2 || disks != 1 { // an empty one, and one with the sandbox
		t.Errorf("three machines took %d snapshots and %d disks", n, disks)
	}
	if out := ofImage(t, d, imagetest.Host(t), "cat /said 2>&1; ls -d /usr/games"); !strings.Contains(out, "No such file") || !strings.HasSuffix(out, "\n/usr/games\n") {
		t.Errorf("in a machine of the host's: %q", out)
	}
	if text, err := os.ReadFile(filepath.Join("/", shown.Layers.Dirs[0], "said")); err != nil || string(text) != "of the upper layer\n" {
		t.Errorf("the layer says %q, %v", text, err)
	}
}

// While a machine lives nobody can remove what it is made from, and afterwards anybody can:
// snapshots hold nothing. What is gone makes no machine, and what was made of it goes.
func TestImageIsHeld(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	if !removable(t, shown) {
		t.Fatal("control: nobody uses it, and it cannot be removed")
	}
	m, err := madeOf(t, d, shown)
	if err != nil {
		t.Fatal(err)
	}
	if removable(t, shown) {
		t.Error("it can be removed while a machine of it lives")
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !removable(t, shown) {
		t.Error("it cannot be removed after the last machine's end")
	}
	if left := d.dropRemoved(); !left || len(d.bases.known) == 0 {
		t.Fatalf("control: of an image that is there %d snapshots are kept", len(d.bases.known))
	}
	if err := os.Remove(shown.Layers.Record); err != nil {
		t.Fatal(err)
	}
	if left := d.dropRemoved(); left || len(d.bases.known) != 0 || len(d.host.disk.known) != 0 {
		t.Errorf("of an image that is gone %d snapshots and %d disks are kept", len(d.bases.known), len(d.host.disk.known))
	}
	if m, err := madeOf(t, d, shown); err == nil || sandbox.AsError(err).Code != sandbox.CodeTemplateUnknown {
		t.Errorf("of an image that is gone: %v, %v", m, err)
	}
	if err := os.WriteFile(shown.Layers.Record, nil, 0o600); err != nil { // it came back
		t.Fatal(err)
	}
	if out := ofImage(t, d, shown, "cat /said"); out != "of the upper layer\n" {
		t.Errorf("of one that came back: %q", out)
	}
}

// removable says whether whoever removes an image would get its lock.
func removable(t *testing.T, shown image.Template) bool {
	t.Helper()
	f, err := os.Open(shown.Layers.Record)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err == nil
}

// An image that has links and names where the sandbox's own places are, or the machine's,
// leads nowhere, and gets nothing of this host's by what its links say.
func TestHostileImage(t *testing.T) {
	shown := imagetest.Image(t)
	top, secret := filepath.Join("/", shown.Layers.Dirs[0]), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"tmp": "/etc", "home": "/bin", "dev": "/tmp", "proc": "/bin", "sys": "/bin", "run": "/", "var": "/bin", "image": "/", "root": "/proc/1/root",
		"out": secret, "up": "../../../../../../../.." + secret, "self": "/proc/self/root" + secret, "two\nlines": "x", "\x01\xff": "y",
	} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(top, "up")); err != nil || string(text) != "of the host\n" {
		t.Fatalf("control: the link leads nowhere on the host: %q, %v", text, err)
	}
	out := ofImage(t, open(t, options(t)), shown, `
for d in /tmp /home /home/user /dev /proc /sys /run /var /var/tmp; do test -d $d && ! test -L $d || echo $d; done
echo mine > /tmp/x; cat /etc/x 2>/dev/null; cat /out /up /self /root/etc/hostname 2>/dev/null; grep -c processor /proc/cpuinfo; echo > /dev/null; cd; pwd`)
	if want := "1\n/home/user\n"; out != want {
		t.Errorf("inside: %q, want %q", out, want)
	}
}

// An image that cannot be shown is refused with the reason, and others are made all the same.
func TestImageThatCannotBeShown(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	broken := shown
	broken.ID, broken.Layers.Dirs = "broken", append([]string{strings.TrimPrefix(t.TempDir(), "/") + "/gone"}, shown.Layers.Dirs...)
	if _, err := madeOf(t, d, broken); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if out := ofImage(t, d, shown, "cat /said"); out != "of the upper layer\n" {
		t.Errorf("of another: %q", out)
	}
}

// Disks are kept of the templates that were used last.
func TestDisksAreBounded(t *testing.T) {
	var d disks
	first := d.at("first")
	for i := range maxDisks + 5 {
		d.at(fmt.Sprint(i))
		if d.at("first") != first {
			t.Fatalf("the one that is used is gone after %d others", i+1)
		}
	}
	if len(d.known) != maxDisks || d.known["0"] != nil {
		t.Errorf("%d are kept", len(d.known))
	}
}

// conform runs the contract's suite. Its tests share a driver that has looked at the host
// and booted a machine: each would do so again, which takes many seconds.
func conform(t *testing.T, d *Driver, o Options, template func(testing.TB) image.Template, again bool) {
	t.Helper()
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		t.Helper()
		kept := maps.Clone(d.bases.known)
		t.Cleanup(func() { d.forget(kept) })
		return d
	}, drivertest.Options{
		Template: template,
		Again:    again,
		Kernel:   true,
		Isolated: true,
		Host:     true,
		KillAgent: func(m driver.Machine) error {
			one, ok := m.(*machine)
			if !ok {
				return errors.New("it is no virtual machine")
			}
			return one.process.child.Kill()
		},
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Limits.MemoryBytes = 1 << 50
			return "boot"
		},
		State: []string{o.StateDir},
	})
}
