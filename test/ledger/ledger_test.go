//go:build linux

package ledger

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Each kind of thing that a test can leave behind without privilege is seen,
// and is gone from the ledger when it is gone.
func TestSeesWhatIsLeft(t *testing.T) {
	stateDir := t.TempDir()
	for _, c := range []struct {
		name string
		make func(t *testing.T) (undo func())
		want string
	}{
		{"descriptor", func(t *testing.T) func() {
			f, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = f.Close() }
		}, "descriptor: /dev/null"},
		{"goroutine", func(*testing.T) func() {
			stop := make(chan bool)
			var all sync.WaitGroup
			for range 8 { // some that were there before may have ended meanwhile
				all.Go(func() { <-stop })
			}
			return func() { close(stop); all.Wait() }
		}, "goroutines: of this process"},
		{"process", func(t *testing.T) func() {
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		}, "process: "},
		{"zombie", func(t *testing.T) func() {
			cmd := exec.Command("true")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() { _ = cmd.Wait() }
		}, "process: "},
		{"state", func(t *testing.T) func() {
			name := filepath.Join(stateDir, "lease")
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(name) }
		}, "state: " + stateDir},
		{"temporary file", func(t *testing.T) func() {
			dir, err := os.MkdirTemp("", "pinfold-ledger-")
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(dir) }
		}, "temporary file: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := Take(stateDir)
			undo := c.make(t)
			more := More(before, Take(stateDir))
			undo()
			seen := false
			for _, line := range more {
				seen = seen || strings.HasPrefix(line, "  "+c.want)
			}
			if !seen {
				t.Errorf("no %q among %q", c.want, more)
			}
			if left := Wait(before, stateDir); len(left) > 0 {
				t.Errorf("still there after it was undone: %q", left)
			}
		})
	}
}

// Where others want the processors too, everything takes longer; what stays because it
// keeps them busy by itself gets no more time for that.
func TestPatience(t *testing.T) {
	t.Setenv(EmulatedEnv, "")
	cpus := float64(runtime.NumCPU())
	for _, c := range []struct {
		others float64
		want   time.Duration
	}{{0, usual}, {cpus - 1, usual}, {2*cpus - 1, 2 * usual}, {100 * cpus, longest}} {
		if got := (&Allowance{quiet: usual, looks: 10, wanted: 10 * c.others}).Bound(); got != c.want {
			t.Errorf("with %.0f others on %.0f processors: %v, want %v", c.others, cpus, got, c.want)
		}
	}
	before := Take()
	burner := exec.Command("sh", "-c", "while :; do :; done")
	if err := burner.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = burner.Process.Kill(); _ = burner.Wait() }()
	for busy(before) == 0 { // the test's own timeout bounds it
		time.Sleep(time.Millisecond)
	}
	if n := busy(Take()); n != 0 {
		t.Errorf("%d of those who were there before count as left", n)
	}
	p := Within(50 * time.Millisecond)
	if left := p.Wait(before); len(left) == 0 || p.looks == 0 {
		t.Errorf("%q is left after %v", left, p)
	}
	t.Setenv(EmulatedEnv, "1")
	if got := Usual().Bound(); got != longest {
		t.Errorf("on an emulated machine: %v", got)
	}
}
