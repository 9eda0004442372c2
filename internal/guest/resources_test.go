package guest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func TestLargeOutputFlatMemory(t *testing.T) {
	const size = 100 << 20
	l := startAgent(t, mode{pid1: true})
	out := &slowly{pause: 100 * time.Microsecond}
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}, Env: env}, guest.Streams{Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if out.n.Load() != size {
		t.Fatalf("%d bytes came, want %d", out.n.Load(), size)
	}
	if peak := status(t, l.pid, "VmHWM"); peak > 16<<10 {
		t.Fatalf("the agent used %d KiB", peak)
	}
}

// status reads a number of /proc/PID/status.
func status(t testing.TB, pid int, field string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

// The agent needs no thread that it did not have at its start. It relies on
// what this version of Go makes before main; see the agent's package comment.
func TestThreadsAreBounded(t *testing.T) {
	keepsToItsThreads(t, func(t *testing.T, l *live) {
		if n := status(t, l.pid, "Threads"); n < wire.MaxTasks-1 {
			t.Errorf("%d threads before the first process, want the %d that are needed", n, wire.MaxTasks-1)
		}
		l.sh(t, "true", "")
		done := make(chan error)
		const jobs = 48
		for i := range jobs {
			go func() {
				if i%3 == 0 {
					done <- l.WriteFile(deadline(t), fmt.Sprintf("f%d", i), 0o644, 3<<20, io.LimitReader(zeros{}, 3<<20))
					return
				}
				p, err := l.Start(deadline(t), guest.Command{Args: []string{"sh", "-c", "head -c 2000000 /dev/zero; cat >/dev/null"}, Env: env},
					guest.Streams{Stdin: io.LimitReader(zeros{}, 1<<20), Stdout: io.Discard})
				if err == nil {
					_, err = p.Wait(deadline(t))
				}
				done <- err
			}()
		}
		for range jobs {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// keepsToItsThreads fails if agents make more threads than they may at that work. A
// thread that was made stays. One agent in some dozens makes one more where the
// processors are so busy that the kernel stops two of its threads in the middle of a
// short system call; an agent that makes a call that lasts does each time.
func keepsToItsThreads(t *testing.T, work func(t *testing.T, l *live)) {
	t.Helper()
	const agents = 3
	for i := range agents {
		l := startAgent(t, mode{pid1: true})
		work(t, l)
		n := status(t, l.pid, "Threads")
		if n <= wire.MaxTasks || t.Failed() {
			return
		}
		t.Logf("agent %d of %d made %d threads, want at most %d", i+1, agents, n, wire.MaxTasks)
	}
	t.Errorf("each of %d agents made more than %d threads", agents, wire.MaxTasks)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A fork bomb that takes every process there is must not end the agent, and must
// not keep it from moving files and killing the bomb.
func TestAgentSurvivesForkBomb(t *testing.T) {
	group := pidsGroup(t, wire.MaxTasks+24)
	l := startAgent(t, mode{pid1: true})
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(l.pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	bomb, err := l.Start(deadline(t), guest.Command{Args: []string{"bash", "-c", "b() { b | b & }; b; while :; do b; done"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 40 {
		if err := l.WriteFile(deadline(t), fmt.Sprintf("f%d", i), 0o644, 1<<20, io.LimitReader(zeros{}, 1<<20)); err != nil {
			t.Fatalf("WriteFile beside the bomb: %v", err)
		}
		p, err := l.Start(deadline(t), guest.Command{Args: []string{"head", "-c", "300000", "/dev/zero"}, Env: env}, guest.Streams{Stdout: io.Discard})
		switch {
		case code(err) == sandbox.CodeResourceUnavailable:
			refused++
		case err != nil:
			t.Fatalf("Start beside the bomb: %v", err)
		default:
			if _, err := p.Wait(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if denied := groupEvents(t, group); denied == 0 {
		t.Error("the bomb never reached the limit: this test proves nothing")
	}
	if err := l.KillAll(deadline(t)); err != nil {
		t.Fatalf("KillAll: %v", err)
	}
	if e, err := bomb.Wait(deadline(t)); err != nil || e.Signal != syscall.SIGKILL {
		t.Fatalf("the bomb: %+v, %v", e, err)
	}
	if got := l.sh(t, "echo alive", "").Stdout; got != "alive\n" {
		t.Fatalf("afterwards: %q", got)
	}
	t.Logf("%d of 40 starts were refused", refused)
}

// pidsGroup makes a cgroup that limits processes, on version 1 or 2.
func pidsGroup(t *testing.T, limit int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a cgroup")
	}
	parent := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(parent); err != nil {
		parent = "/sys/fs/cgroup"
	}
	group, err := os.MkdirTemp(parent, "pinfold-guest-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 { // the last processes may be on their way out
			if err = os.Remove(group); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("the cgroup stays: %v", err)
	})
	if err := os.WriteFile(filepath.Join(group, "pids.max"), []byte(strconv.Itoa(limit)), 0o600); err != nil {
		t.Fatal(err)
	}
	return group
}

// groupEvents returns how often the kernel refused a process in the group.
func groupEvents(t *testing.T, group string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(group, "pids.events"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
