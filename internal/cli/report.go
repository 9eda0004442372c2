package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Bounds on the lines about single artifacts.
const (
	maxNotes  = 10
	maxStored = 100 // with --verbose
)

// reportOptions is what the report needs to know of the request.
type reportOptions struct {
	verbose  bool
	dir      string   // where artifacts went
	patterns []string // which ones were asked for
	kept     int64    // bytes that were passed on of each stream
	keeps    int64    // the most that could have been, where one was cut
	unasked  bool     // our stdin is a terminal, and was not passed on
	here     bool     // what the program lacked may lie in this directory
	inputs   []runs.Input
	asks     bool  // what was tried is asked for
	context  int64 // bytes of each stream that were asked for; 0: all
}

// report says on stderr what the program's own output does not: why it ended,
// unless it simply exited, and what did not come out.
func (a *app) report(r *sandbox.Result, o reportOptions) {
	if line := ending(r); line != "" {
		a.say("%s", line)
	}
	if o.unasked && r.Status == sandbox.StatusFailed && wantedInput(r.Stderr) {
		a.say("the program wanted input; --stdin - passes this terminal on to it")
	}
	if o.here && r.Status == sandbox.StatusFailed {
		if flag := forgotten(r.Stderr, o.inputs); flag != "" {
			a.say("a file that the program did not find is in this directory; %s copies it in", flag)
		}
	}
	for _, line := range cuts(r, o.kept, o.keeps) {
		a.say("%s", line)
	}
	if r.Cleanup != nil {
		a.say("%s%s", sandbox.SafeText(r.Cleanup.Message, maxMessage), hintText(r.Cleanup.Hint))
	}
	if r.PipesHeld {
		a.say("a process that outlived the program still held its output; it was ended")
	}
	if r.ColdBecause != "" {
		a.say("--warm had no effect: %s", sandbox.SafeText(r.ColdBecause, maxMessage))
	}
	for _, line := range seen(r) {
		a.say("%s", line)
	}
	if o.asks {
		for _, line := range tried(r.Network) {
			a.say("%s", line)
		}
	}
	a.policyNotes(r)
	a.gateNotes(r, o)
	a.artifactNotes(r, o)
	if o.verbose {
		a.details(r)
	}
}

// seen says what a scan saw, the worst first.
func seen(r *sandbox.Result) (lines []string) {
	if r.FindingsUnread != "" {
		lines = append(lines, "scan: "+sandbox.SafeText(r.FindingsUnread, maxMessage))
	}
	all := slices.Clone(r.Findings)
	slices.SortStableFunc(all, func(a, b sandbox.Finding) int {
		return slices.Index(sandbox.Severities(), b.Severity) - slices.Index(sandbox.Severities(), a.Severity)
	})
	for i, f := range all {
		if i == maxNotes {
			return append(lines, fmt.Sprintf("scan: and %d more; --json has them", len(all)-i))
		}
		lines = append(lines, fmt.Sprintf("scan: line %d: %s: %s (%s)", f.Line, sandbox.SafeText(string(f.Severity), 20), sandbox.SafeText(f.Title, maxMessage), sandbox.SafeText(f.Rule, 40)))
	}
	return lines
}

// policyNotes says what the operator's rules have changed.
func (a *app) policyNotes(r *sandbox.Result) {
	if r.Policy == nil {
		return
	}
	for i, m := range r.Policy.Rules {
		if i == maxNotes {
			a.say("policy: and %d more rules; --json has them", len(r.Policy.Rules)-i)
			return
		}
		for _, c := range m.Changes {
			a.say("policy: %s: %s is %s", sandbox.SafeText(m.Rule, 60), sandbox.SafeText(c.Field, 60), sandbox.SafeText(c.To, 200))
		}
	}
	if d := r.Policy.Approval; d != nil {
		why := ""
		if d.Reason != "" {
			why = ": " + sandbox.SafeText(d.Reason, maxMessage)
		}
		a.say("policy: %s by %s%s", sandbox.SafeText(string(d.Verdict), 20), sandbox.SafeText(d.By, 60), why)
	}
}

// wantedInput says whether a Python program ended because there was nothing to
// read.
func wantedInput(stderr string) bool {
	i := strings.LastIndex(strings.TrimSpace(stderr), "\n")
	return strings.HasPrefix(stderr[i+1:], "EOFError: ")
}

// artifactNotes says what was asked for and did not come out and, when that is
// wanted, what did.
func (a *app) artifactNotes(r *sandbox.Result, o reportOptions) {
	for i, s := range r.ArtifactsSkipped {
		if i == maxNotes {
			a.say("and %d more artifacts stayed inside", len(r.ArtifactsSkipped)-maxNotes)
			break
		}
		if s.Path == "" { // about several
			a.say("artifacts: %s", sandbox.SafeText(s.Reason, 200))
			continue
		}
		a.say("artifact %s stayed inside: %s", sandbox.SafeText(s.Path, 120), sandbox.SafeText(s.Reason, 200))
	}
	for _, p := range unmatched(r, o.patterns) {
		a.say("no file matched %s", sandbox.SafeText(shellQuote(p), 120))
	}
	if !o.verbose || o.dir == "" {
		return
	}
	for i, stored := range r.Artifacts {
		if i == maxStored {
			a.say("and %d more artifacts stored", len(r.Artifacts)-maxStored)
			break
		}
		a.say("stored %s (%s)", sandbox.SafeText(filepath.Join(o.dir, stored.Path), 200), sandbox.FormatSize(stored.Size))
	}
}

// cuts says which streams were cut, where, and what would keep them whole. A
// program that was ended for its output has said so already.
func cuts(r *sandbox.Result, kept, keeps int64) []string {
	if r.Cause.Kind == sandbox.CauseOutput {
		return nil
	}
	whose := ""
	if r.Cause.Phase == sandbox.PhaseCompile && r.Compile != nil {
		whose, kept = "the compiler's ", r.Compile.Limits.OutputBytes
	}
	var lines []string
	for _, s := range []struct {
		name string
		cut  bool
		all  int64
	}{{"stdout", r.StdoutTruncated, r.StdoutBytes}, {"stderr", r.StderrTruncated, r.StderrBytes}} {
		if !s.cut {
			continue
		}
		line := fmt.Sprintf("%s%s was cut at %s of %s", whose, s.name, sandbox.FormatSize(kept), beside(s.all, kept, sandbox.UnitBytes))
		if whose == "" {
			line += "; " + keepAdvice(s.all, keeps)
		}
		lines = append(lines, line)
	}
	return lines
}

// keeps is the most that can be kept of a stream, if one was cut.
func (a *app) keeps(ctx context.Context, r *sandbox.Result) int64 {
	if !r.StdoutTruncated && !r.StderrTruncated {
		return 0
	}
	return a.most(ctx, sandbox.CauseOutput)
}

// keepAdvice is how that many bytes of output are kept whole, of which so many can be.
func keepAdvice(all, keeps int64) string {
	if all > keeps {
		return noMore(keeps) + "write it to a file and take that out with --artifact"
	}
	return keepFlag(all, keeps) + " keeps it"
}

func keepFlag(all, keeps int64) string {
	info, _ := limitOf(sandbox.CauseOutput)
	return "--" + info.Flag + " " + sandbox.FormatSize(min(enough(all), keeps))
}

// noMore says that a server keeps no more of a stream.
func noMore(keeps int64) string {
	if info, _ := limitOf(sandbox.CauseOutput); keeps < info.Max {
		return "the server keeps at most " + sandbox.FormatSize(keeps) + " (limits.max." + info.Field + " in its configuration); "
	}
	return ""
}

// enough is the next power of two, which FormatSize writes exactly.
func enough(n int64) int64 {
	p := int64(1)
	for p < n {
		p *= 2
	}
	return p
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
			failed := fmt.Sprintf("compiling failed with exit status %d", exitStatus(r))
			if _, more := r.Cause.Advice.Find(sandbox.FixSet); more { // else its messages say all
				failed += hintText(r.Cause.Hint)
			}
			return failed
		}
		if r.Status != sandbox.StatusError {
			return sandbox.SafeText(r.Cause.Hint, maxMessage)
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
		return status + ": " + limitText(r, info, r.Cause.Hint)
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

// limitText names the limit, what was observed and what raises it.
func limitText(r *sandbox.Result, info sandbox.LimitInfo, hint string) string {
	c := r.Cause
	name := strings.ReplaceAll(string(info.Cause), "_", " ")
	if c.Phase == sandbox.PhaseCompile {
		name = "the compiler's " + name
	}
	if c.Limit <= 0 {
		return name + " limit reached" + hintText(hint)
	}
	return fmt.Sprintf("%s limit %s reached (observed %s)%s", name,
		sandbox.FormatQuantity(c.Limit, info.Unit), beside(c.Observed, c.Limit, info.Unit), hintText(hint))
}

// beside writes a value that stands beside a limit in the limit's unit, so that
// both can be compared at a glance. What would then look like the limit and is
// not is written exactly.
func beside(v, limit int64, unit sandbox.Unit) string {
	exact := sandbox.FormatQuantity(v, unit)
	if unit != sandbox.UnitBytes {
		return exact
	}
	for i, name := range []string{"TiB", "GiB", "MiB", "KiB"} {
		size := int64(1) << (10 * (4 - i))
		if limit < size {
			continue
		}
		text := strings.TrimSuffix(fmt.Sprintf("%.1f", float64(v)/float64(size)), ".0") + name
		if v != limit && text == sandbox.FormatSize(limit) {
			return exact
		}
		return text
	}
	return exact
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
		size(u.MemoryPeakBytes), u.ProcessesPeak, size(u.DiskPeakBytes))
	how := ""
	if r.Warm {
		how = ", warm start"
	}
	a.say("driver %s%s: create %.1fms, run %.1fms, destroy %.1fms", sandbox.SafeText(r.Isolation.Driver, 40), how,
		r.Timings.CreateMS, r.Timings.ExecMS, r.Timings.DestroyMS)
	for _, gap := range r.Isolation.NotEnforced {
		line := fmt.Sprintf("not enforced: %s: %s", sandbox.SafeText(gap.What, 60), sandbox.SafeText(gap.Why, 200))
		if gap.Fix != "" {
			line += ". Fix: " + sandbox.SafeText(gap.Fix, 200)
		}
		a.say("%s", line)
	}
}
