//go:build linux

package proctree

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

func TestReadSelf(t *testing.T) {
	u := Read(os.Getpid())
	if u.Tasks < 1 || u.MemoryBytes < 1<<16 {
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
		if cpu, threads := parseStat(b); cpu < 0 || threads < 0 || parseStatm(b) < 0 {
			t.Fatal("negative")
		}
	})
}
