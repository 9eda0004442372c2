package cli

import (
	"fmt"
	"strings"

	"pinfold/sandbox"
)

const (
	maxNotes       = 10       // lines about single artifacts
	maxCompileText = 64 << 10 // bytes of a compiler's output that we repeat
)

// report says on stderr what the program's own output does not: why it ended,
// unless it simply exited, and what did not come out.
func (a *app) report(r *sandbox.Result, verbose bool) {
	if r.Cause.Phase == sandbox.PhaseCompile && r.Compile != nil {
		a.compilerOutput(r.Compile)
	}
	if line := ending(r); line != "" {
		a.say("%s", line)
	}
	if r.PipesHeld {
		a.say("a process that outlived the program still held its output; it was ended")
	}
	for i, s := range r.ArtifactsSkipped {
		if i == maxNotes {
			a.say("and %d more artifacts stayed inside", len(r.ArtifactsSkipped)-maxNotes)
			break
		}
		a.say("artifact %s stayed inside: %s", sandbox.SafeText(s.Path, 120), sandbox.SafeText(s.Reason, 200))
	}
	if verbose {
		a.details(r)
	}
}

func (a *app) compilerOutput(c *sandbox.Compile) {
	for _, text := range []string{c.Stdout, c.Stderr} {
		if len(text) > maxCompileText {
			text = text[:maxCompileText] + "\n"
		}
		if text == "" {
			continue
		}
		w := &visible{w: a.Stderr}
		_, _ = w.Write([]byte(text)) // stderr is where failures would be said
		_ = w.Close()
		if !strings.HasSuffix(text, "\n") {
			_, _ = a.Stderr.WriteString("\n")
		}
	}
}

// ending is the one line that says why the program ended, "" when it exited.
func ending(r *sandbox.Result) string {
	what := "the program"
	if r.Cause.Phase == sandbox.PhaseCompile {
		what = "the compiler"
	}
	status := sandbox.SafeText(string(r.Status), 20)
	evidence := sandbox.SafeText(r.Cause.Evidence, 200)
	switch r.Cause.Kind {
	case sandbox.CauseExited:
		if r.Cause.Phase == sandbox.PhaseCompile {
			return fmt.Sprintf("compiling failed with exit status %d", exitStatus(r))
		}
		if r.Status != sandbox.StatusError {
			return ""
		}
	case sandbox.CauseSignaled:
		signal := r.Signal
		if r.Cause.Phase == sandbox.PhaseCompile && r.Compile != nil {
			signal = r.Compile.Signal
		}
		return fmt.Sprintf("%s: %s died of %s", status, what, sandbox.SafeText(signal, 20))
	case sandbox.CauseSyscall:
		return status + ": " + what + " used a system call that is not allowed: " + sandbox.SafeText(r.Cause.Syscall, 40)
	case sandbox.CauseCancelled:
		return status + ": cancelled"
	case sandbox.CauseLost:
		return strings.TrimSuffix(status+": the sandbox was lost: "+evidence, ": ")
	}
	if info, ok := limitOf(r.Cause.Kind); ok {
		return status + ": " + limitText(r, info)
	}
	if r.Error != nil {
		return status + ": " + sandbox.SafeText(r.Error.Error(), maxMessage) + hintText(r.Error.Hint)
	}
	return status + ": " + evidence
}

func limitOf(kind sandbox.CauseKind) (sandbox.LimitInfo, bool) {
	for _, info := range sandbox.LimitTable() {
		if info.Cause == kind {
			return info, true
		}
	}
	return sandbox.LimitInfo{}, false
}

// limitText names the limit, what was observed and the flag that raises it.
func limitText(r *sandbox.Result, info sandbox.LimitInfo) string {
	c := r.Cause
	name := strings.ReplaceAll(string(info.Cause), "_", " ")
	if c.Phase == sandbox.PhaseCompile {
		name = "the compiler's " + name
	}
	if c.Limit <= 0 {
		return name + " limit reached" + hintText(c.Hint)
	}
	hint := c.Hint
	if c.Phase == "" && c.Limit < info.Max {
		hint = "--" + info.Flag + " " + sandbox.FormatQuantity(min(roundUp(c.Limit, info), info.Max), info.Unit)
	}
	return fmt.Sprintf("%s limit %s reached (observed %s)%s", name,
		sandbox.FormatQuantity(c.Limit, info.Unit), sandbox.FormatQuantity(c.Observed, info.Unit), hintText(hint))
}

// roundUp is twice the limit, in a form that FormatQuantity writes exactly.
func roundUp(limit int64, info sandbox.LimitInfo) int64 {
	twice := 2 * limit
	if info.Unit != sandbox.UnitBytes {
		return twice
	}
	for unit := int64(1 << 40); unit > 1; unit >>= 10 {
		if twice >= unit {
			return (twice + unit - 1) / unit * unit
		}
	}
	return twice
}

func hintText(hint string) string {
	if hint == "" {
		return ""
	}
	return ". Hint: " + sandbox.SafeText(hint, maxMessage)
}

// details is what --verbose adds.
func (a *app) details(r *sandbox.Result) {
	u := r.Usage
	a.say("%s in %dms: cpu %dms, memory %s, processes %d, disk %s", sandbox.SafeText(string(r.Status), 20), u.WallMS, u.CPUMS,
		sandbox.FormatSize(u.MemoryPeakBytes), u.ProcessesPeak, sandbox.FormatSize(u.DiskPeakBytes))
	a.say("driver %s: create %.1fms, run %.1fms, destroy %.1fms", sandbox.SafeText(r.Isolation.Driver, 40),
		r.Timings.CreateMS, r.Timings.ExecMS, r.Timings.DestroyMS)
	for _, gap := range r.Isolation.NotEnforced {
		line := fmt.Sprintf("not enforced: %s: %s", sandbox.SafeText(gap.What, 60), sandbox.SafeText(gap.Why, 200))
		if gap.Fix != "" {
			line += ". Fix: " + sandbox.SafeText(gap.Fix, 200)
		}
		a.say("%s", line)
	}
}
