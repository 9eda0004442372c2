package audit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/sandbox"
)

// onSmallDisk names the directory on which a child of the next test mounts a small disk.
const onSmallDisk = "PINFOLD_TEST_AUDIT_DISK"

// A disk that fills up refuses what has not begun while there is still room for what has:
// no record is lost. It goes on when there is room again.
func TestFullDiskRefusesBeforeItLoses(t *testing.T) {
	if dir := os.Getenv(onSmallDisk); dir != "" {
		fillDisk(t, dir)
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDiskRefusesBeforeItLoses$", "-test.v") //nolint:gosec // ourselves
	child.Env = append(os.Environ(), onSmallDisk+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// disk mounts a disk, or changes the size of the one that is there.
func disk(t *testing.T, dir, size string, flags uintptr) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size); err != nil {
		t.Fatal(err)
	}
}

func fillDisk(t *testing.T, mount string) {
	t.Helper()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	disk(t, mount, "6m", 0)
	dir := filepath.Join(mount, Dir)
	l := open(t, Options{Dir: dir})
	recorded := int64(0)
	for l.Check() == nil {
		if recorded++; recorded > 20_000 {
			t.Fatal("the disk is not full")
		}
		if _, err := l.Record(t.Context(), event(1)); err != nil {
			t.Fatalf("record %d is lost, and nothing was refused before it: %v", recorded, err)
		}
	}
	if err := l.Check(); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("%v", err)
	}
	for range 500 { // what was under way
		recorded++
		if _, err := l.Record(t.Context(), event(1)); err != nil {
			t.Fatalf("what was under way is lost: %v", err)
		}
	}
	disk(t, mount, "64m", syscall.MS_REMOUNT)
	for begin := time.Now(); l.Check() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("there is room, and it does not go on")
		}
	}
	c := closedLog{dir: dir, public: l.PublicKey()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := c.report(t, Evidence{}); r.Problem != nil || r.Entries != recorded {
		t.Errorf("%d recorded; %+v", recorded, r)
	}

	// A disk that is read-only from the beginning is said at once.
	disk(t, mount, "64m", syscall.MS_REMOUNT|syscall.MS_RDONLY)
	if l, err := Open(Options{Dir: dir}); code(err) != sandbox.CodeConfigInvalid {
		t.Errorf("%v, %v", l, err)
	}
	if err := syscall.Unmount(mount, 0); err != nil {
		t.Error(err)
	}
}
