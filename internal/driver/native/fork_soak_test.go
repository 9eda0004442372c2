//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/test/ledger"
)

// forkSoakEnv asks for a long soak of forks: how many.
const forkSoakEnv = "PINFOLD_SOAK_FORKS"

// forkGrowth is how much memory a zygote may gain in all, however many forks it
// makes.
const forkGrowth = 8 << 20

// Forks are made, run and destroyed side by side, and nothing of them is left,
// neither on the host nor in their zygote. How long each took is printed, not judged.
func TestForkSoak(t *testing.T) {
	n, width := 300, 4
	if text := os.Getenv(forkSoakEnv); text != "" {
		many, err := strconv.Atoi(text)
		if err != nil || many < 100 {
			t.Fatalf("%s=%q is not a number of forks from 100 on", forkSoakEnv, text)
		}
		n = many
	}
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	p, plan, err := newPythonZygote(t, d, "json")
	if errors.Is(err, errors.ErrUnsupported) {
		return // not root
	}
	if err != nil {
		t.Fatal(err)
	}
	soakForks(t, p, plan, 2*width, width) // what is made once is made now
	memory := usageOf(t, p).MemoryBytes
	before := ledger.Take(state)
	start := time.Now()
	took := soakForks(t, p, plan, n, width)
	elapsed := time.Since(start)
	if left := ledger.Wait(before, state); len(left) > 0 {
		t.Errorf("left behind by %d forks:\n%v", n, left)
	}
	usage := usageOf(t, p)
	if usage.MemoryBytes > memory+forkGrowth || usage.Processes != 0 {
		t.Errorf("the zygote had %d bytes of memory and has %d, in %d processes beside it", memory, usage.MemoryBytes, usage.Processes)
	}
	if waiting := p.(*zygoteMachine).link.Children(); waiting > 0 {
		t.Errorf("%d forks are waited for", waiting)
	}
	tenth := min(len(took), max(100, n/10))
	t.Logf("%d forks, %d at a time: %.1f s, %.0f each second; median of the first %d %v, of the last %v; the zygote's memory %+d KiB",
		n, width, elapsed.Seconds(), float64(n)/elapsed.Seconds(), tenth, median(took[:tenth]), median(took[len(took)-tenth:]), (usage.MemoryBytes-memory)>>10)
}

// soakForks returns how long each fork took, in the order in which they began.
func soakForks(t *testing.T, p driver.Zygote, plan driver.Plan, n, width int) []time.Duration {
	t.Helper()
	return lives(t, n, width, func(i int) error { return forkOnce(t, p, plan, i) })
}

// forkOnce has one fork print its number and a random one. Every seventh is
// destroyed while it runs.
func forkOnce(t *testing.T, p driver.Zygote, plan driver.Plan, i int) error {
	plan.ID = fmt.Sprintf("fork-%d", forkCount.Add(1))
	m, f, err := p.Fork(t.Context(), plan)
	if err != nil {
		return err
	}
	if i%7 == 6 {
		hand(t, f, "import time; time.sleep(60)")
		err = m.Destroy(t.Context())
		if e := <-f.Exited; e.Signal != 9 {
			err = errors.Join(err, fmt.Errorf("it ended with %+v", e))
		}
		closeFiles([]*os.File{f.Stdin, f.Stdout, f.Stderr})
		return err
	}
	out, said, exit := tell(t, f, fmt.Sprintf("import json; print(json.dumps(%d))", i))
	if out != fmt.Sprintf("%d\n", i) || said != "" || exit.Code != 0 || exit.Signal != 0 {
		err = fmt.Errorf("it printed %q, %q and ended with %+v", out, said, exit)
	}
	return errors.Join(err, m.Destroy(t.Context()))
}
