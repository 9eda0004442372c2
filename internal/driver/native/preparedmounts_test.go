//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/linux/mount"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// onGrounds returns a driver whose sandboxes stand on prepared mounts from the first on.
func onGrounds(t *testing.T, state string) *Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's sandboxes begin with no prepared mounts")
	}
	d := newDriver(t, state)
	h, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	h.shows(imagetest.Host(t)).prepared.from = 0
	return d
}

// A sandbox is the same on prepared mounts and without.
func TestPostureOnPreparedMounts(t *testing.T) {
	agenttest.Program(t, drivertest.Probe)
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d := onGrounds(t, state)
	compare(t, "root", marshal(t, takeRecord(t, d)))
	if g := &d.host.shows(imagetest.Host(t)).prepared; len(g.all) != 0 || g.living != 0 {
		t.Errorf("after the last sandbox %d prepared mounts are kept for %d", len(g.all), g.living)
	}
}

func TestConformanceOnPreparedMounts(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	drivertest.Run(t, func(t *testing.T) driver.Driver { return onGrounds(t, state) }, drivertest.Options{
		Kernel:    true,
		Isolated:  true,
		Host:      true,
		KillAgent: func(m driver.Machine) error { return unix.Kill(m.(*machine).child.PID, unix.SIGKILL) },
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Hostname = strings.Repeat("x", 65) // the kernel takes 64 bytes
			return "set host name"
		},
		Zygotes: zygotes,
		State:   []string{state},
	})
}

// Below the root of a sandbox on prepared mounts lies nothing of the host's but what the
// sandbox sees anyway: root of the host enters its mount namespace, takes away
// what covers the prepared mounts, and looks.
func TestBelowTheRoot(t *testing.T) {
	d := onGrounds(t, filepath.Join(t.TempDir(), "state"))
	m := made(t, d, "below")
	if m.prepared == nil || len(m.shown.prepared.all) != 1 {
		t.Fatal("control: the sandbox begins with no prepared mounts")
	}
	pid := m.child.PID
	above, below := bare(t, pid)
	if !slices.Contains(above, "usr") || !slices.Contains(above, "home") {
		t.Errorf("control: the sandbox's own root holds %v", above)
	}
	if want := []string{"new", "proc", "views"}; !slices.Equal(below, want) {
		t.Errorf("below the root lies %v, want %v", below, want)
	}
}

// bare returns what the root of a process's mount namespace holds, before and
// after its topmost mount is taken away.
func bare(t *testing.T, pid int) (above, below []string) {
	t.Helper()
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	failed := make(chan error)
	onThreadThatEnds(func() {
		failed <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			above = names(t, "/")
			if err := unix.Unmount("/", unix.MNT_DETACH); err != nil {
				return fmt.Errorf("take away the root: %w", err)
			}
			// The way back in leads to the topmost mount that is left.
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			below = names(t, "/")
			return nil
		}()
	})
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return above, below
}

// What is mounted below a view makes other prepared mounts, what is mounted elsewhere
// does not.
func TestPreparedMountsSeeMounts(t *testing.T) {
	shown := image.Template{Binds: []image.Bind{{Source: "/usr", Target: "/usr", Dir: true}}}
	const root = "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"
	before := readMounts(shown, root)
	if got := readMounts(shown, root+"40 22 0:35 / /usrlocal rw - tmpfs tmpfs rw\n"); got.identity != before.identity || len(got.nested) > 0 {
		t.Errorf("a mount beside the view changed %+v to %+v", before, got)
	}
	var st unix.Statx_t // the number of the mount that is there
	if err := unix.Statx(unix.AT_FDCWD, "/usr/local", 0, unix.STATX_MNT_ID, &st); err != nil {
		t.Fatal(err)
	}
	mounted := fmt.Sprintf("%d 22 0:35 / /usr/local rw - tmpfs tmpfs rw\n", st.Mnt_id)
	if got := readMounts(shown, root+mounted); got.identity == before.identity || !slices.Equal(got.nested, []string{"/usr/local"}) || got.file != "" {
		t.Errorf("a mount below the view changed nothing: %+v", got)
	}
}

// onThreadThatEnds calls f in a goroutine of its own, on a thread that ends with
// it. That can be any but the first, which the runtime keeps, and by whose mount
// namespace everybody goes who asks /proc/self.
func onThreadThatEnds(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // and never unlocked
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() { // on another thread: this one is taken
			defer close(done)
			runtime.LockOSThread()
			f()
		}()
		<-done
	}()
}

func names(t *testing.T, dir string) (all []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A directory of the host that was replaced is seen new by the next sandbox, also when
// its prepared mounts are older.
func TestPreparedMountsFollowTheHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root prepares mounts")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	replace := func() {
		for _, err := range []error{os.RemoveAll(dir + ".old"), os.MkdirAll(dir, 0o755), os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	replace()
	shown := image.Template{Binds: []image.Bind{{Source: dir, Target: "/dir", Dir: true}}}
	mounts := hostMounts{template: shown}
	g := preparedPool{make: prepareMounts, views: func(s mountState) []hostView { return hostViews(shown, true, true, s.nested) }}
	defer g.close()
	take := func() *preparedMounts {
		t.Helper()
		got, err := g.take(mounts.look(), false)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first, again := take(), take()
	if first == nil || first != again {
		t.Fatalf("two sandboxes stand on %p and %p", first, again)
	}
	replace()
	mounts.looked = mounts.looked.Add(-2e9) // two seconds ago
	if next := take(); next == nil || next == first {
		t.Error("a sandbox begins with the prepared mounts that show the old directory")
	}
	g.give(first)
	g.give(again)
	if len(g.all) != 1 {
		t.Errorf("%d prepared mounts are kept, of which only one shows the host as it is", len(g.all))
	}
}

// Prepared mounts that could not be made are no reason never to make one again. Who can do
// without one does; who cannot says so, once.
func TestPreparedMountsThatFail(t *testing.T) {
	failing := errors.New("no more mounts")
	var fail error
	tried := 0
	g := preparedPool{
		views: func(mountState) []hostView { return nil },
		make: func([]hostView) (*os.File, error) {
			tried++
			if fail != nil {
				return nil, fail
			}
			return os.Open(os.DevNull)
		},
	}
	defer g.close()
	fail = failing
	if got, err := g.take(mountState{}, true); got != nil || !errors.Is(err, failing) {
		t.Errorf("who needs prepared mounts begins with %v: %v", got, err)
	}
	g.give(nil)
	tried, g.failed = 0, time.Time{}
	for range 3 {
		if got, err := g.take(mountState{}, false); got != nil || err != nil {
			t.Errorf("who needs none stands on %v: %v", got, err)
		}
	}
	if tried != 1 {
		t.Errorf("%d attempts at once", tried)
	}
	fail = nil
	needing, err := g.take(mountState{}, true)
	if needing == nil || err != nil {
		t.Errorf("who needs prepared mounts waits for those who can do without: %v", err)
	}
	g.failed = time.Now().Add(-preparePause)
	if got, err := g.take(mountState{}, false); got == nil || err != nil {
		t.Errorf("nobody tries again: %v", err)
	}
}

// The next sandbox is made where one could not be, also where none can do without a
// prepared mounts.
func TestSandboxesAfterPreparedMountsThatFailed(t *testing.T) {
	state, dir := filepath.Join(t.TempDir(), "state"), mountedBelow(t)
	ledger.Check(t, state)
	d, shown := showing(t, state, dir, "/etc/hostname")
	h, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	h.shows(shown).prepared.make = func([]hostView) (*os.File, error) { return nil, unix.EAGAIN }
	m, err := d.Create(t.Context(), planOf(t, d, shown, "without"))
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeResourceUnavailable || !strings.Contains(e.Message, "prepare mounts") {
		t.Errorf("%v, %v", m, err)
	}
	h.shows(shown).prepared.make = prepareMounts
	made(t, d, "with")
}

// A read-only mount of a file system that cannot translate ids is shown as it is, also
// to those that begin with prepared mounts.
func TestPlainMountOnPreparedMounts(t *testing.T) {
	state, dir := filepath.Join(t.TempDir(), "state"), mountedBelow(t)
	ledger.Check(t, state)
	const plain = "/sys/kernel" // sysfs
	if _, err := mount.IDMapped(plain, mount.ReadOnly, mount.Owner{}, mount.Owner{UID: 1, GID: 1}); !errors.Is(err, mount.ErrNotMappable) {
		t.Fatalf("control: its ids can be translated: %v", err)
	}
	d, shown := showing(t, state, dir, "/etc/hostname")
	plan := planOf(t, d, shown, "plain")
	plan.Mounts = []sandbox.Mount{{Host: plain, Guest: "/mnt/shown"}}
	if out := printedBy(t, d, plan, "ls /mnt/shown; touch /mnt/shown/x 2>&1; cat /opt/dir/below/mounted"); !strings.Contains(out, "mm\n") || !strings.Contains(out, "Read-only") || !strings.HasSuffix(out, "mounted") {
		t.Errorf("inside is %q", out)
	}
}
