//go:build linux

package proctree

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestReadSelf(t *testing.T) {
	u := Read(os.Getpid())
	if u.CPUNanos < 0 || u.MemoryBytes < 1<<16 {
		t.Fatalf("implausible reading of ourselves: %+v", u)
	}
}

// The kernel lists a child under the thread that made it, which in the agent
// is hardly ever the first one.
func TestReadChildrenOfEveryThread(t *testing.T) {
	before := Read(os.Getpid()).Tasks
	const n = 8
	made := make(chan *exec.Cmd, n)
	for range n {
		go func() {
			runtime.LockOSThread() // so that each has a thread of its own
			defer runtime.UnlockOSThread()
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
			made <- cmd
		}()
	}
	for range n {
		cmd := <-made
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	if got := Read(os.Getpid()).Tasks; got < before+n {
		t.Fatalf("%d tasks before %d children were made, %d after", before, n, got)
	}
}

// Forked processes share their memory until they write to it, and shared
// memory is memory too.
func TestMemoryCountsWhatIsSharedOnce(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		missing(t, "apt-get install python3-minimal")
	}
	const program = "import mmap, os, sys, time\n" +
		"x = bytearray(b'x' * (32 << 20))\nm = mmap.mmap(-1, 32 << 20); m.write(x)\n" +
		"for i in range(4):\n  if os.fork() == 0: m[::4096]; print('up', flush=True); time.sleep(60)\n" +
		"time.sleep(60)\n"
	cmd := exec.Command(python, "-c", program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for range 4 {
		lines.Scan()
	}
	// Each child looks at every shared page before it says that it is up; what
	// the kernel shows of it may come a moment later.
	for range 100 {
		if u := Read(cmd.Process.Pid); u.Tasks == 4 && u.MemoryBytes >= 5*60<<20 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	all, once := Read(cmd.Process.Pid).MemoryBytes, Memory(cmd.Process.Pid, 0)
	if all < 5*60<<20 || once < 64<<20 || once > 2*64<<20 {
		t.Fatalf("five processes that share 64 MiB: %d MiB in all, %d MiB counted once", all>>20, once>>20)
	}
	if less := Memory(cmd.Process.Pid, 32<<20); less > once-31<<20 {
		t.Fatalf("%d MiB without the shared part, %d MiB with it", less>>20, once>>20)
	}
}

func missing(t *testing.T, hint string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
		t.Fatalf("not on this machine: %s", hint)
	}
	t.Skipf("not on this machine: %s", hint)
}

func TestParseStatNameWithParenthesis(t *testing.T) {
	line := []byte("7 (a) b ) c) S 1 7 7 0 -1 4194560 10 0 0 0 3 4 5 6 20 0 9 0 100 200 300")
	cpu, threads := parseStat(line)
	if cpu != 18*10_000_000 || threads != 9 {
		t.Fatalf("got %d ns and %d threads", cpu, threads)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("7 (x) S 1 7 7 0 -1 4194560 10 0 0 0 3 4 5 6 20 0 9"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cpu, threads := parseStat(b); cpu < 0 || threads < 0 || sum(b, "RssAnon:") < 0 {
			t.Fatal("negative")
		}
	})
}
