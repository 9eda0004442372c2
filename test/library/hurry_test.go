//go:build linux

package library

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// hurriedLines are so many that a program is in a hurry for most of them.
const hurriedLines = 300_000

// hurried prints them, and then tells what that cost.
var hurried = fmt.Sprintf(`
import sys, time
def writes():
    with open('/proc/self/io') as f: return int(f.read().split('syscw: ')[1].split()[0])
calls, cpu = writes(), time.process_time()
for i in range(%d): print(i)
cpu = time.process_time() - cpu
print(writes() - calls, cpu, file=sys.stderr)
`, hurriedLines)

// printing is what it cost to print the lines.
type printing struct {
	writes int
	cpu    float64 // seconds
}

func costs(t *testing.T, stderr string) (p printing) {
	t.Helper()
	if _, err := fmt.Sscan(stderr, &p.writes, &p.cpu); err != nil || p.writes == 0 || p.cpu == 0 {
		t.Fatalf("no costs: %v: %q", err, stderr)
	}
	return p
}

// TestFastPrinters holds the speed of programs that print fast: by the number of their
// writes, which no other work on the machine changes much, and by the CPU time that they
// take inside and outside in turns, each the best of several times. Line by line there
// are as many writes as lines, and the time is more than four times that of outside. The
// control is a program that may not hurry, since it has looked at the binary stream.
func TestFastPrinters(t *testing.T) {
	ledger.Check(t)
	w := pooled(t)
	file := filepath.Join(t.TempDir(), "main.py")
	if err := os.WriteFile(file, []byte(hurried), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := func(t *testing.T, code string, cold bool) printing {
		t.Helper()
		r := must(w.Run(t.Context(), sandbox.Spec{Language: "python", Code: code, Limits: pooledLimits, Cold: cold}, client.RunOptions{}))(t)
		if r.Status != sandbox.StatusSucceeded || strings.Count(r.Stdout, "\n") != hurriedLines || r.Warm == cold && os.Geteuid() == 0 {
			t.Fatalf("cold %v: %s by %+v, warm %v\n%.500s", cold, r.Status, r.Cause, r.Warm, r.Stderr)
		}
		return costs(t, r.Stderr)
	}
	for _, cold := range []bool{true, false} {
		t.Run(fmt.Sprintf("cold %v", cold), func(t *testing.T) {
			best, bare := inside(t, hurried, cold), bareCost(t, file)
			for range 4 {
				p, b := inside(t, hurried, cold), bareCost(t, file)
				best = printing{min(best.writes, p.writes), min(best.cpu, p.cpu)}
				bare = printing{min(bare.writes, b.writes), min(bare.cpu, b.cpu)}
			}
			t.Logf("%d lines: %d writes inside, %d outside; %.0f and %.0f ms of CPU time", hurriedLines, best.writes, bare.writes, best.cpu*1000, bare.cpu*1000)
			if best.writes > hurriedLines/10 {
				t.Errorf("%d writes of %d lines, %d outside: they are written line by line", best.writes, hurriedLines, bare.writes)
			}
			if best.cpu > 3*bare.cpu {
				t.Errorf("%.0f ms of CPU time, outside %.0f", best.cpu*1000, bare.cpu*1000)
			}
			if control := inside(t, "import sys\nsys.stdout.buffer\n"+hurried, cold); control.writes < hurriedLines {
				t.Errorf("the control: %d lines in %d writes", hurriedLines, control.writes)
			}
		})
	}
}

// bareCost runs the program with Python alone, into a pipe that is read.
func bareCost(t *testing.T, file string) printing {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", file)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONUTF8=1"} // and not PYTHONUNBUFFERED
	var errors strings.Builder
	cmd.Stdout, cmd.Stderr = &strings.Builder{}, &errors
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &errors)
	}
	return costs(t, errors.String())
}
