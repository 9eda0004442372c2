//go:build linux

package drivertest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Tests of machines of an image (imagetest.Image), for the drivers that make them of its
// layers. say runs lines of shell in a new machine and returns what they print on stdout
// and stderr; create makes a machine of a name, which the caller destroys.

// Image wants what is inside to be the image's layers, the upper over the lower, with the
// sandbox's own files on top, and nothing of the host's.
func Image(t *testing.T, shown image.Template, say func(script string) string) {
	t.Helper()
	if _, err := os.Stat("/usr/games"); err != nil {
		t.Fatalf("control: there is nothing to hide: %v", err)
	}
	out := say(`
cat /said; ls -d /games 2>&1; ls -d /home /root /image 2>&1; cat /etc/hostname; sed -n 1p /etc/passwd; grep -m 1 -o ' /tmp ' /etc/mtab; id -un; cd; pwd
for f in /x /etc/x /bin/x /said; do (echo > $f) 2>&1 | grep -c -e "Read-only" -e "Permission denied"; done
echo mine > /home/user/x && echo mine > /tmp/x && echo mine > /dev/shm/x && cat /home/user/x; echo > /dev/null && echo null; python3 -c 'print(6 * 7)'`)
	want := `of the upper layer
ls: cannot access '/games': No such file or directory
ls: cannot access '/root': No such file or directory
ls: cannot access '/image': No such file or directory
/home
sandbox
user:x:1000:1000::/home/user:/bin/sh
 /tmp 
user
/home/user
1
1
1
1
mine
null
42
`
	if out != want {
		t.Errorf("inside:\n%s\nwant\n%s", out, want)
	}
	if text, err := os.ReadFile(filepath.Join("/", shown.Layers.Dirs[0], "said")); err != nil || string(text) != "of the upper layer\n" {
		t.Errorf("the layer says %q, %v", text, err)
	}
}

// HostileImage wants links and names of an image, where the sandbox's own places are or
// those of a machine, to lead nowhere, and to give nothing of this host's.
func HostileImage(t *testing.T, shown image.Template, say func(script string) string) {
	t.Helper()
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
	out := say(`
for d in /tmp /home /home/user /dev /proc /sys /run /var /var/tmp; do test -d $d && ! test -L $d || echo $d; done
echo mine > /tmp/x; cat /etc/x 2>/dev/null; cat /out /up /self /root/etc/hostname 2>/dev/null; grep -c processor /proc/cpuinfo; echo > /dev/null; ls /home; cd; pwd`)
	if want := "1\nuser\n/home/user\n"; out != want {
		t.Errorf("inside: %q, want %q", out, want)
	}
}

// ImageIsHeld wants nobody to be able to remove what machines are made from while one of
// them lives, and anybody afterwards.
func ImageIsHeld(t *testing.T, shown image.Template, create func(name string) (driver.Machine, error)) {
	t.Helper()
	if !removable(t, shown) {
		t.Fatal("control: nobody uses it, and it cannot be removed")
	}
	first, err := create("first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := create("second")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []driver.Machine{first, second} {
		if removable(t, shown) {
			t.Error("it can be removed while a sandbox of it lives")
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !removable(t, shown) {
		t.Error("it cannot be removed after the last sandbox's end")
	}
}

// ImageIsGone removes an image, and wants no machine to be made of it. removed is called in
// between; it may be nil.
func ImageIsGone(t *testing.T, shown image.Template, removed func(), create func(name string) (driver.Machine, error)) {
	t.Helper()
	if err := os.Remove(shown.Layers.Record); err != nil {
		t.Fatal(err)
	}
	if removed != nil {
		removed()
	}
	if m, err := create("third"); err == nil || sandbox.AsError(err).Code != sandbox.CodeTemplateUnknown {
		t.Errorf("of an image that is gone: %v, %v", m, err)
	}
}

// removable says whether whoever removes an image would get its lock.
func removable(t *testing.T, shown image.Template) bool {
	t.Helper()
	f, err := os.Open(shown.Layers.Record)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only a lock
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err == nil
}
