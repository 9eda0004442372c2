package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// What is inside is the image's layers, the upper over the lower, with the sandbox's own
// files on top, and nothing of the host's.
func TestImage(t *testing.T) {
	runsc := runscForTests(t)
	ledger.Check(t)
	shown := imagetest.Image(t)
	if _, err := os.Stat("/usr/games"); err != nil {
		t.Fatalf("control: there is nothing to hide: %v", err)
	}
	d := opened(t, runsc)
	m := createOf(t, d, planOf(t, d, shown, "image", sandbox.Limits{}))
	out := m.run(t, "/bin/sh", "-c", `
cat /said; ls -d /games 2>&1; ls -d /home /root 2>&1; cat /etc/hostname; sed -n 1p /etc/passwd; id -un
for f in /x /etc/x /bin/x /said; do (echo > $f) 2>&1 | grep -c -e "Read-only" -e "Permission denied"; done
echo mine > /home/user/x && echo mine > /tmp/x && echo mine > /dev/shm/x && cat /home/user/x; echo > /dev/null && echo null`)
	want := `of the upper layer
ls: cannot access '/games': No such file or directory
ls: cannot access '/root': No such file or directory
/home
sandbox
user:x:1000:1000::/home/user:/bin/sh
user
1
1
1
1
mine
null
`
	if out != want {
		t.Errorf("inside:\n%s\nwant\n%s", out, want)
	}
	if content, err := os.ReadFile(filepath.Join("/", shown.Layers.Dirs[0], "said")); err != nil || string(content) != "of the upper layer\n" {
		t.Errorf("the layer says %q, %v", content, err)
	}
}

// An image that has links where the sandbox's own places are leads nowhere.
func TestImageWithLinks(t *testing.T) {
	runsc := runscForTests(t)
	ledger.Check(t)
	shown := imagetest.Image(t)
	top := filepath.Join("/", shown.Layers.Dirs[0])
	for name, to := range map[string]string{"tmp": "/etc", "home": "/bin", "dev": "/tmp", "proc": "/bin", "sys": "/bin", "run": "/", "var": "/bin"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	d := opened(t, runsc)
	m := createOf(t, d, planOf(t, d, shown, "links", sandbox.Limits{}))
	out := m.run(t, "/bin/sh", "-c", `
for d in /tmp /home /home/user /dev /proc /sys /run /var /var/tmp; do test -d $d && ! test -L $d || echo $d; done
echo mine > /tmp/x; cat /etc/x 2>/dev/null; grep -c processor /proc/cpuinfo; echo > /dev/null; ls /home`)
	if want := "1\nuser\n"; out != want {
		t.Errorf("inside: %q, want %q", out, want)
	}
}

// While a sandbox lives nobody can remove what it is made from, and afterwards anybody can.
// What is gone makes none.
func TestImageIsHeld(t *testing.T) {
	runsc := runscForTests(t)
	ledger.Check(t)
	shown := imagetest.Image(t)
	if !removable(t, shown) {
		t.Fatal("control: nobody uses it, and it cannot be removed")
	}
	d := opened(t, runsc)
	plan := planOf(t, d, shown, "held", sandbox.Limits{})
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if removable(t, shown) {
		t.Error("it can be removed while a sandbox of it lives")
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !removable(t, shown) {
		t.Error("it cannot be removed after the sandbox's end")
	}
	if err := os.Remove(shown.Layers.Record); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Create(t.Context(), plan.Named("gone")); err == nil || sandbox.AsError(err).Code != sandbox.CodeTemplateUnknown {
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
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err == nil
}
