//go:build linux

package spawn_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
	"pinfold/test/asuser"
)

// What belongs to a namespace's users its owner may open, although it may not by itself,
// and nothing else.
func TestOpenIn(t *testing.T) {
	if os.Geteuid() == 0 {
		asuser.Rerun(t, "TestOpenIn", nil, nil)
		return
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: unix.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", child.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	closed := filepath.Join(t.TempDir(), "closed")
	if err := errors.Join(os.WriteFile(closed, []byte("secret"), 0o600), os.Chmod(closed, 0)); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(closed); !errors.Is(err, unix.EACCES) {
		_ = f.Close()
		t.Fatalf("control: %v", err)
	}
	open := func(namespace int, name string) (int, error) {
		return spawn.OpenIn(namespace, unix.AT_FDCWD, name, unix.O_RDONLY, 0)
	}
	fd, err := open(int(namespace.Fd()), closed)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "closed") //nolint:gosec // a descriptor
	defer f.Close()
	if text, err := io.ReadAll(f); string(text) != "secret" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it would go along with an exec: %v", err)
	}
	for name, want := range map[string]error{"/etc/shadow": unix.EACCES, closed + "-not": unix.ENOENT} {
		if fd, err := open(int(namespace.Fd()), name); err != want { //nolint:errorlint // the very number
			t.Errorf("%s: %d, %v, want %v", name, fd, err, want)
		}
	}
	var number syscall.Errno
	if _, err := open(int(f.Fd()), closed); err == nil || errors.As(err, &number) {
		t.Errorf("a namespace that is none: %v", err)
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); dumpable != 1 {
		t.Errorf("this process has become undumpable: %d, %v", dumpable, err)
	}
}
