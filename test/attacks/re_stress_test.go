//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"strings"

	"pinfold/sandbox"
)

// stressClasses are the classes of stress-ng that strain what a sandbox shares with
// the host. Those of its stressors that need what no sandbox has are left out: they
// end all the others early.
var stressClasses = strings.Fields("os vm filesystem scheduler memory pipe io")

const stressWithout = "aiol,io-uring,rawdev,readahead,revio,sync-file"

// stressCases run a whole class at once, at the limits of a large sandbox, until a
// limit ends it. What is killed there must still be able to end.
func stressCases() []Case {
	var all []Case
	for _, class := range stressClasses {
		all = append(all, Case{
			ID: "RE-13-" + class, Title: "every stressor of stress-ng's class " + class + " at once, at the sandbox's limits", Level: User, Severity: HostDoS, Source: "stress-ng",
			Expect: "a limit ends the run or it ends by itself, never an error; nothing is left; a neighbour goes on",
			Attack: Payload{
				Language: "sh", Code: "exec stress-ng --class " + class + " --all 1 -x " + stressWithout + " -t 10s 2>&1",
				Limits: sandbox.Limits{MemoryBytes: 1 << 30, Processes: 256, DiskBytes: 512 << 20, FileSizeBytes: 512 << 20, WallTimeMS: 3000},
			},
			Needs:  []string{sandbox.FeatureMemory},
			Around: func(t *trial) func() { return t.victim() },
			Judge:  func(t *trial) error { return errors.Join(t.strained(), t.victimFine()) },
			Control: Control{Without: "an end by a limit", Run: func(a *arena) error {
				t := a.run(Payload{Language: "sh", Code: "exec stress-ng --cpu 1 -t 1s 2>&1"})
				if t.err != nil || t.result.Status != sandboxSucceeded || !strings.Contains(t.result.Stdout, "successful run completed in 1.") {
					return fmt.Errorf("stress-ng does not run inside: %w %+v", t.err, t.result)
				}
				return nil
			}},
		})
	}
	return all
}

// strained wants a result that says how the program ended.
func (t *trial) strained() error {
	r := t.result
	switch {
	case t.err != nil:
		return t.err
	case r.Status == sandbox.StatusError || r.Error != nil:
		return fmt.Errorf("status %s: %w", r.Status, r.Error)
	case !strings.Contains(r.Stdout, "dispatching hogs"):
		return fmt.Errorf("no stressor was started: %.300q", r.Stdout)
	}
	if r.Cleanup != nil { // on a busy host; the ledger sees whether it goes in the end
		t.Logf("late: %v", r.Cleanup)
	}
	t.Logf("%s for %s after %.0f ms; gone %.0f ms later", r.Status, r.Cause.Kind, r.Timings.ExecMS, r.Timings.DestroyMS)
	return nil
}
