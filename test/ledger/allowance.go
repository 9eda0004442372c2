//go:build linux

package ledger

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	// usual is for a machine that has nothing else to do: the kernel frees namespaces
	// late, and goroutines end after what they wait for.
	usual = 8 * time.Second
	// longest is for any machine.
	longest = time.Minute
	// worthSaying is where a person should look what takes so long.
	worthSaying = 2 * time.Second
)

// EmulatedEnv names a variable that, where it is set, says that the machine is an
// emulated one: everything takes many times as long, and no count of processes shows it.
const EmulatedEnv = "PINFOLD_TEST_EMULATED"

// Allowance bounds how long things may take to go away. On a machine on which
// others want the processors as well it is as many times longer as there are too
// many of them, a minute at most. What is left behind is not among the others: what
// keeps the processors busy instead of ending earns no allowance.
type Allowance struct {
	quiet  time.Duration // on a machine that has nothing else to do
	looks  float64
	wanted float64 // the sum over all looks of how many others wanted a processor
}

// Usual is the allowance for whatever a test leaves behind.
func Usual() *Allowance { return Within(usual) }

// Within is a allowance of that long, on a machine that has nothing else to do.
func Within(quiet time.Duration) *Allowance { return &Allowance{quiet: quiet} }

// String says how long it is and why.
func (p *Allowance) String() string {
	return fmt.Sprintf("%v are allowed: beside it %.1f others wanted %d processors", p.Bound().Round(time.Millisecond), p.others(), runtime.NumCPU())
}

func (p *Allowance) others() float64 { return p.wanted / max(1, p.looks) }

// Bound is how long it is, by what was seen until now.
func (p *Allowance) Bound() time.Duration {
	if os.Getenv(EmulatedEnv) != "" {
		return longest
	}
	crowd := (p.others() + 1) / float64(runtime.NumCPU()) // and whom we wait for
	return min(longest, time.Duration(float64(p.quiet)*max(1, crowd)))
}

// Look counts once who wants a processor, beside what there was not before.
func (p *Allowance) Look(before Snapshot) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	fields := strings.Fields(string(load)) // 0.20 0.18 0.12 1/80 11206
	if len(fields) < 4 {
		return
	}
	running, _, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(running)
	if err != nil {
		return
	}
	p.looks++
	p.wanted += float64(max(0, n-1-busy(before))) // we run, to look
}

// busy counts the running threads of the processes that there were not before.
func busy(before Snapshot) (n int) {
	for _, p := range sandboxed() {
		if before[kindProcess][p.String()] > 0 {
			continue
		}
		dir := "/proc/" + strconv.Itoa(p.pid) + "/task"
		for _, tid := range names(dir) {
			stat, _ := os.ReadFile(dir + "/" + tid + "/stat")
			if _, fields, ok := statFields(stat); ok && fields[0] == "R" {
				n++
			}
		}
	}
	return n
}
