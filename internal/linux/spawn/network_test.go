//go:build linux

package spawn_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// elsewhere starts a process in a network namespace of its own.
func elsewhere(t *testing.T, flags uint64) *spawn.Child {
	t.Helper()
	p := spawn.New()
	p.Exec("/bin/sleep", []string{"sleep", "60"}, nil)
	child, err := p.Start(spawn.Clone{Flags: flags | unix.CLONE_NEWNET})
	if err != nil {
		t.Fatal(err)
	}
	if err := child.WaitExec(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Kill()
		wait(t, child)
	})
	return child
}

// here fails the test where a thread of ours is in another network namespace than this one.
func here(t *testing.T, own string) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, thread := range threads {
		if at, err := os.Readlink(thread); err == nil && at != own {
			t.Errorf("%s is in %s, not in %s", thread, at, own)
		}
	}
}

// A thread that was in another network namespace is back before anything else runs on it,
// also where what it did there fails or panics.
func TestThreadsComeBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may go into another network namespace")
	}
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if !spawn.CanVisit() {
		t.Error("root cannot visit")
	}
	child := elsewhere(t, 0)
	failed := errors.New("failed")
	for _, panics := range []bool{false, true} {
		err := func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err, _ = p.(error)
				}
			}()
			return child.InNetwork(func() error {
				if at, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || at == own {
					t.Errorf("inside: %s %v", at, err)
				}
				if panics {
					panic(failed)
				}
				return failed
			})
		}()
		if !errors.Is(err, failed) {
			t.Errorf("panics: %v: %v", panics, err)
		}
		here(t, own)
	}
}

// Root of a user namespace whose network is somebody else's could go into a child's and not
// come back: it does not go.
func TestNoWayBack(t *testing.T) {
	const inside = "PINFOLD_TEST_NO_WAY_BACK"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestNoWayBack$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Skip("this host has no user namespaces for us: ", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if spawn.CanVisit() {
		t.Error("it is said to be possible")
	}
	child := elsewhere(t, unix.CLONE_NEWUSER)
	err = child.InNetwork(func() error {
		t.Error("it went there")
		return nil
	})
	if !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	here(t, own)
}
