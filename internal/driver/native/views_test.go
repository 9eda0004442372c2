//go:build linux

package native

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// showing returns a driver whose template shows a directory and a file of the test's at
// /opt as well.
func showing(t *testing.T, state, dir, file string) (*Driver, image.Template) {
	t.Helper()
	agent := agenttest.Bytes(t)
	d := New(Options{StateDir: state, Agent: func() ([]byte, error) { return agent, nil }})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	shown := imagetest.Host(t)
	shown.Dirs = append([]image.Dir{{Path: "/opt", Mode: 0o755}}, shown.Dirs...)
	shown.Binds = append([]image.Bind{{Source: dir, Target: "/opt/dir", Dir: true}, {Source: file, Target: "/opt/file"}}, shown.Binds...)
	return d, shown
}

// printedBy runs a shell script in a new sandbox and returns what it prints.
func printedBy(t *testing.T, d *Driver, plan driver.Plan, script string) string {
	t.Helper()
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var out bytes.Buffer
	p, g, err := startIn(t.Context(), m, plan, guest.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() // the machine is destroyed
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// mountedBelow returns a directory with a mount below it.
func mountedBelow(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts take root; for users see TestFilesFinding")
	}
	dir = t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) //nolint:gosec // of the test
	}
	below := filepath.Join(dir, "below")
	err := errors.Join(os.Mkdir(below, 0o755), unix.Mount("tmpfs", below, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	if err = errors.Join(err, os.WriteFile(filepath.Join(below, "mounted"), []byte("mounted"), 0o644)); err != nil { //nolint:gosec // for everybody
		t.Fatal(err)
	}
	return dir
}

// What is mounted below a directory that is shown is shown too, through a layer of its
// own, on the first sandbox as on the hundredth.
func TestMountsBelowViews(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts take root; for users see TestFilesFinding")
	}
	state, dir := filepath.Join(t.TempDir(), "state"), t.TempDir()
	ledger.Check(t, state)
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) //nolint:gosec // of the test
	}
	below := filepath.Join(dir, "with space", "below")
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil { //nolint:gosec // for everybody
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "above"), "above")
	write(filepath.Join(below, "hidden"), "hidden")
	write(filepath.Join(t.TempDir(), "file"), "")
	for range 2 { // the upper one counts
		if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	}
	write(filepath.Join(below, "mounted"), "mounted")
	d, shown := showing(t, state, dir, "/etc/hostname")
	out := printedBy(t, d, planOf(t, d, shown, "below"), `cat /opt/dir/above; ls "/opt/dir/with space/below"; cat "/opt/dir/with space/below/mounted"; grep -c ' /opt/dir.* - overlay ' /proc/self/mountinfo; grep -c ' - tmpfs .*size=64k' /proc/self/mountinfo`)
	if out != "abovemounted\nmounted2\n0\n" {
		t.Errorf("inside is %q", out)
	}
}

// Files are copies of what the host has now; what not everybody may read, is too large or
// is no file any more is not there.
func TestShownFiles(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	file := filepath.Join(t.TempDir(), "file")
	d, shown := showing(t, state, "/usr/lib", file)
	for _, test := range []struct {
		name, want string
		make       func() error
	}{
		{"there", "first", func() error { return os.WriteFile(file, []byte("first"), 0o644) }},
		{"the same", "first", func() error { return nil }},
		{"replaced", "other", func() error {
			return errors.Join(os.WriteFile(file+".new", []byte("other"), 0o644), os.Rename(file+".new", file))
		}},
		{"private", "none", func() error { return os.Chmod(file, 0o600) }},
		{"public", "other", func() error { return os.Chmod(file, 0o644) }},
		{"large", "none", func() error { return os.Truncate(file, maxShownFile) }},
		{"a link", "none", func() error { return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)) }},
		{"gone", "none", func() error { return os.Remove(file) }},
	} {
		if err := test.make(); err != nil {
			t.Fatal(err)
		}
		if out := printedBy(t, d, planOf(t, d, shown, "files"), "cat /opt/file 2>/dev/null || echo none"); strings.TrimSpace(out) != test.want {
			t.Errorf("%s: inside it is %q, want %q", test.name, out, test.want)
		}
	}
}

// Where a layer of one's own cannot be had it is said, with what to do.
func TestFilesFinding(t *testing.T) {
	for _, test := range []struct {
		name   string
		root   bool
		state  mountState
		kernel error
		answer driver.Answer
		why    string
		fix    string
	}{
		{"usual", false, mountState{}, nil, driver.Yes, "overlay", ""},
		{"nested, root", true, mountState{nested: []string{"/usr/local"}}, nil, driver.Yes, "overlay", ""},
		{"nested, user", false, mountState{nested: []string{"/usr/local"}}, nil, driver.No, "/usr/local", "sudo -s"},
		{"a file", true, mountState{nested: []string{"/usr/a b"}, file: "/usr/a b"}, nil, driver.No, "/usr/a b", "sudo umount '/usr/a b'"},
		{"no overlays", true, mountState{}, errors.ErrUnsupported, driver.No, "unsupported", "sudo modprobe overlay"},
	} {
		h := &host{}
		h.ids.root, h.features.overlay = test.root, test.kernel
		s := h.shows(image.Template{})
		s.mounts.last, s.mounts.looked = test.state, time.Now().Add(time.Hour)
		f := s.filesFinding()
		if f.Feature != sandbox.FeatureFilesOwn || f.Answer != test.answer || !strings.Contains(f.Because, test.why) || f.Fix.Text != test.fix {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
}

// What the plan calls plain views is plain views, of everything that is mounted below
// too, and still read-only.
func TestPlainViews(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d := newDriver(t, state)
	h, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	h.features.overlay, h.features.devices = errors.ErrUnsupported, errors.ErrUnsupported
	plan := planFor(t, d, "plain")
	if plan.Enforces(sandbox.FeatureFilesOwn) || plan.Enforces(sandbox.FeatureDevicesOwn) {
		t.Fatalf("the plan says %+v", plan.Posture)
	}
	out := printedBy(t, d, plan, `touch /usr/x 2>&1 | grep -c Read-only; touch /dev/null 2>&1 | grep -c Read-only; echo x > /dev/null && head -c 2 /dev/zero | wc -c; grep -c overlay /proc/self/mountinfo; cat /etc/ld.so.cache | wc -c | grep -vc '^0$'`)
	if out != "1\n1\n2\n0\n1\n" {
		t.Errorf("inside is %q", out)
	}
}
