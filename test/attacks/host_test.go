//go:build linux

package attacks

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
)

const sandboxSucceeded = sandbox.StatusSucceeded

// settings of the whole host that no sandbox may change.
var settings = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/pid_max",
	"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/status", "/proc/sys/kernel/sysrq",
	"/proc/sys/kernel/tainted", "/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_inotify_instances", "/proc/self/oom_score_adj",
}

// hostState is what must be the same before and after.
func hostState(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range settings {
		content, err := os.ReadFile(name)
		if err != nil {
			content = []byte("unreadable\n")
		}
		fmt.Fprintf(&b, "%s %s", name, content)
	}
	for _, name := range []string{"/etc/passwd", "/etc/hostname", "/usr/bin/id", "/bin/sh"} {
		content, err := os.ReadFile(name)
		fmt.Fprintf(&b, "%s %x %v\n", name, sha256.Sum256(content), err)
	}
	return b.String()
}

// checkAgent compares the program that all sandboxes have shared, the file and
// what the driver has open, with what was put there.
func (a *arena) checkAgent() {
	a.Helper()
	want := agenttest.Bytes(a.T)
	names := []string{a.agent}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		a.Fatal(err)
	}
	for _, fd := range fds {
		name := filepath.Join("/proc/self/fd", fd.Name())
		if target, _ := os.Readlink(name); strings.HasPrefix(target, "/memfd:pinfold-agent") {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			a.Errorf("the agent's program %s changed: %v", name, err)
		}
	}
}

// memAvailable is what the host has left, in bytes.
func memAvailable() int64 { return meminfo("MemAvailable:") }

// shmem is what the host holds in shared memory and tmpfs, in bytes, that of others included:
// what control groups count of it is seconds late on a busy machine.
func shmem() int64 { return meminfo("Shmem:") }

func meminfo(field string) int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// growth reads a counter until grown is called, which returns by how much it was higher at most
// than in the beginning.
func growth(read func() int64) (grown func() int64) {
	quit, most := make(chan struct{}), make(chan int64)
	before := read()
	go func() {
		high := before
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				most <- high
				return
			case <-tick.C:
				high = max(high, read())
			}
		}
	}()
	return func() int64 {
		close(quit)
		return <-most - before
	}
}

// victim is a neighbour that does a fixed piece of work while an attack goes
// on. It must always finish; how long it takes is reported, never judged.
func (t *trial) victim() (stop func()) {
	work := Payload{Code: "s = 0\nfor i in range(300000): s += i\nsay('sum', s)\n"}
	alone := t.run(work)
	done := make(chan *trial, 1)
	quit := make(chan struct{})
	go func() {
		var last *trial
		for range 40 {
			last = t.run(work)
			if last.err != nil || last.result.Status != sandboxSucceeded {
				break
			}
			select {
			case <-quit:
				done <- last
				return
			default:
			}
		}
		done <- last
	}()
	return func() {
		close(quit)
		last := <-done
		if last.err != nil || last.result.Status != sandboxSucceeded {
			t.notes["victim"] = fmt.Sprintf("a neighbour failed meanwhile: %v %+v", last.err, last.result)
			return
		}
		t.Logf("neighbour: %.1f times as long as alone", float64(last.took)/float64(alone.took))
	}
}

// victimFine is the error that a victim had.
func (t *trial) victimFine() error {
	if v := t.notes["victim"]; v != "" {
		return fmt.Errorf("%s", v)
	}
	return nil
}
