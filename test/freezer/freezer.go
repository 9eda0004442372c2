//go:build linux

// Package freezer keeps a process from ending, whatever it is sent: for tests of what
// waits for the end of processes.
package freezer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Freeze stops a process until thaw is called, or the test ends; meanwhile even
// SIGKILL does not end it. That takes the freezer of cgroup version 1, which a host of
// version 2 has not mounted; but root can. Anybody else's test is skipped.
func Freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can freeze a process so that SIGKILL does not end it")
	}
	root := mounted(t)
	dir := filepath.Join(root, fmt.Sprintf("pinfold-test-%d-%d", os.Getpid(), pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(file, value string) error { return os.WriteFile(filepath.Join(dir, file), []byte(value), 0) }
	thaw = func() {
		if err := put("freezer.state", "THAWED"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		thaw()
		_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) // unless it has ended
		for os.Remove(dir) != nil {                                                         // the test's own timeout bounds it
			time.Sleep(time.Millisecond)
		}
	})
	err := errors.Join(put("cgroup.procs", strconv.Itoa(pid)), put("freezer.state", "FROZEN"))
	if err != nil {
		t.Fatal(err)
	}
	for state := ""; state != "FROZEN\n"; { // FREEZING before that
		b, err := os.ReadFile(filepath.Join(dir, "freezer.state"))
		if err != nil {
			t.Fatal(err)
		}
		state = string(b)
	}
	return thaw
}

// mounted returns where the freezer is, mounting it where it is not.
func mounted(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		place, fs, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(place), strings.Fields(fs)
		if len(fields) > 4 && len(kind) > 2 && kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "freezer") {
			return fields[4]
		}
	}
	dir := t.TempDir()
	if err := unix.Mount("freezer", dir, "cgroup", 0, "freezer"); err != nil {
		t.Fatalf("the freezer of cgroup version 1: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
