//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// stressClasses are the classes of stress-ng that strain what a sandbox shares with
// the host. Those of its stressors that need what no sandbox has are left out: they
// end all the others early.
var stressClasses = strings.Fields("os vm filesystem scheduler memory pipe io")

const stressWithout = "aiol,io-uring,rawdev,readahead,revio,sync-file"

// stressLimits are those of a large sandbox.
var stressLimits = sandbox.Limits{MemoryBytes: 1 << 30, Processes: 256, DiskBytes: 512 << 20, FileSizeBytes: 512 << 20, WallTimeMS: 3000}

// stressCases run a whole class at once, at the limits of a large sandbox, until a
// limit ends it. What is killed there must still be able to end.
func stressCases() []Case {
	all := []Case{stressCase("RE-15", "the stressor that fills the memory limit with the most processes", "--mmapfork 4 -t 300s", sandbox.CauseMemory)}
	for _, class := range stressClasses {
		all = append(all, stressCase("RE-13-"+class, "every stressor of stress-ng's class "+class+" at once", "--class "+class+" --all 1 -x "+stressWithout+" -t 10s", ""))
	}
	return all
}

// stressCase runs stress-ng, which the cause ends; any cause where it is none.
func stressCase(id, title, args string, cause sandbox.CauseKind) Case {
	limits := stressLimits
	if cause != "" {
		limits.WallTimeMS = 300_000 // the other limit comes first, on a busy machine too
	}
	return Case{
		ID: id, Title: title + ", at the sandbox's limits", Level: User, Severity: HostDoS, Source: "stress-ng",
		Expect: "a limit ends the run or it ends by itself, never an error; 2 s later, on a quiet machine, nothing is left; a neighbour goes on",
		Attack: Payload{Language: "sh", Code: "exec stress-ng " + args + " 2>&1", Limits: limits},
		Needs:  []string{sandbox.FeatureMemory},
		Around: func(t *trial) func() { return t.watchEnd() },
		Judge:  func(t *trial) error { return errors.Join(t.strained(cause), t.victimFine()) },
		Control: Control{Without: "an end by a limit", Run: func(a *arena) error {
			t := a.run(Payload{Language: "sh", Code: "exec stress-ng --cpu 1 -t 1s 2>&1", Limits: sandbox.Limits{WallTimeMS: 300_000}})
			if t.err != nil || t.result.Status != sandboxSucceeded || !strings.Contains(t.result.Stdout, "successful run completed") { // however long a busy machine takes for its second
				return errors.Join(t.err, fmt.Errorf("stress-ng does not run inside: %+v", t.result))
			}
			return nil
		}},
	}
}

// endIn is how soon after its limit's strike a sandbox is gone, on a quiet machine.
const endIn = 2 * time.Second

// watchEnd has a neighbour work meanwhile, and notes when the kernel killed for want
// of memory first, how long things may take here, and what is left.
func (t *trial) watchEnd() (stop func()) {
	before := ledger.Take(t.state)
	t.allowance = ledger.Within(endIn)
	late := time.Now().Add(lateAfter)
	stopVictim := t.victim()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
			groups := ledger.Take(t.state)["cgroup"]
			maps.DeleteFunc(groups, func(dir string, _ int) bool { return before["cgroup"][dir] > 0 })
			t.allowance.Look(before)
			if len(groups) > 0 && time.Now().After(late) {
				late = late.Add(time.Second)
				t.notes["late"] = doing(groups)
			}
			switch {
			case t.struck.IsZero() && outOfMemory(groups):
				t.struck = time.Now()
			case !t.struck.IsZero() && t.gone.IsZero() && !outOfMemory(groups):
				t.gone = time.Now()
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		if t.gone.IsZero() {
			t.gone = time.Now()
		}
		stopVictim()
		if left := t.allowance.Wait(before, t.state); len(left) > 0 {
			t.notes["left"] = strings.Join(left, "\n")
		}
	}
}

// lateAfter is when a sandbox of three seconds should be gone.
const lateAfter = 3*time.Second + endIn

// doing says what some of the processes in those cgroups do: for who wonders why they go on.
func doing(groups map[string]int) string {
	said := map[string]int{}
	for dir := range groups {
		pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, pid := range strings.Fields(string(pids)) {
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			status, _ := os.ReadFile("/proc/" + pid + "/stat")
			stack, _ := os.ReadFile("/proc/" + pid + "/stack")
			_, state, _ := strings.Cut(string(status), ") ")
			calls := strings.Split(string(stack), "\n")
			said[fmt.Sprintf("%s %.1s %s", strings.TrimSpace(string(name)), state, strings.Join(calls[:min(len(calls), 6)], " < "))]++
		}
	}
	var lines []string
	for line, n := range said {
		lines = append(lines, fmt.Sprintf("%d in all groups: %s", n, line))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// outOfMemory says whether the kernel has killed in one of those cgroups.
func outOfMemory(groups map[string]int) bool {
	for dir := range groups {
		for _, file := range []string{"memory.oom_control", "memory.events"} {
			text, _ := os.ReadFile(filepath.Join(dir, file))
			for line := range strings.Lines(string(text)) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" && f[1] != "0" {
					return true
				}
			}
		}
	}
	return false
}

// strained wants a result that says how the program ended, a sandbox that was gone
// soon after, and nothing left.
func (t *trial) strained(cause sandbox.CauseKind) error {
	r := t.result
	switch {
	case t.err != nil:
		return t.err
	case r.Status == sandbox.StatusError || r.Error != nil:
		return fmt.Errorf("status %s: %w", r.Status, r.Error)
	case !strings.Contains(r.Stdout, "dispatching hogs"):
		return fmt.Errorf("no stressor was started: %.300q", r.Stdout)
	case cause != "" && r.Cause.Kind != cause:
		return fmt.Errorf("control: %s ended it", r.Cause.Kind)
	case r.Cleanup != nil:
		return fmt.Errorf("not gone in time: %w", r.Cleanup)
	case t.notes["left"] != "":
		return fmt.Errorf("left behind (%v):\n%s", t.allowance, t.notes["left"])
	}
	took := t.ending()
	t.Logf("%s for %s after %.0f ms; gone %v after the strike (%v)", r.Status, r.Cause.Kind, r.Timings.ExecMS, took.Round(time.Millisecond), t.allowance)
	if took > t.allowance.Bound() {
		return fmt.Errorf("gone %v after the strike of %s (%v); its processes until then:\n%s", took, r.Cause.Kind, t.allowance, t.notes["late"])
	}
	return nil
}

// ending is how long it took from the limit's strike until the sandbox was gone.
func (t *trial) ending() time.Duration {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	switch timings := t.result.Timings; {
	case !t.struck.IsZero():
		return t.gone.Sub(t.struck)
	case t.result.Cause.Kind == sandbox.CauseWallTime:
		return ms(timings.ExecMS + timings.DestroyMS - float64(t.payload.Limits.WallTimeMS))
	default:
		return ms(timings.DestroyMS)
	}
}
