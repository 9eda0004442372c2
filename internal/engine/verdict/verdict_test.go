package verdict

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// verdictCase is some evidence and what must come of it.
type verdictCase struct {
	name   string
	e      Evidence
	status sandbox.Status
	cause  sandbox.CauseKind
}

// verdicts go from the strongest evidence to the weakest: each line adds weaker
// evidence that must not matter.
func verdicts(t *testing.T) []verdictCase {
	t.Helper()
	all := driver.Usage{OOMKills: 1, ProcessesDenied: 5, DiskFull: true, InodesFull: true, Killed: "ptrace"}
	noOOM := all
	noOOM.OOMKills = 0
	denied := driver.Usage{ProcessesDenied: 5}
	late := driver.Usage{OOMKills: 1, MemoryLate: true}
	return []verdictCase{
		{"a trigger beats everything", Evidence{Trigger: &Trigger{Kind: sandbox.CauseWallTime}, Usage: all, Death: &driver.Death{Kind: driver.DeathMemory}, Exit: &Exit{Code: 1}}, sandbox.StatusKilled, sandbox.CauseWallTime},
		{"cancelled though it succeeded", Evidence{Trigger: &Trigger{Kind: sandbox.CauseCancelled}, Exit: &Exit{}}, sandbox.StatusKilled, sandbox.CauseCancelled},
		{"an OOM kill beats death and exit", Evidence{Usage: all, Death: &driver.Death{Kind: driver.DeathAgent}, Exit: &Exit{Code: 1}}, sandbox.StatusKilled, sandbox.CauseMemory},
		{"an OOM kill beats success", Evidence{Usage: all, Exit: &Exit{}}, sandbox.StatusKilled, sandbox.CauseMemory},
		{"death by memory", Evidence{Death: &driver.Death{Kind: driver.DeathMemory}, Exit: &Exit{Code: 1}}, sandbox.StatusKilled, sandbox.CauseMemory},
		{"an OOM kill before the limit followed the disk", Evidence{Usage: late, Exit: &Exit{Signal: sigKill}}, sandbox.StatusError, sandbox.CauseLost},
		{"a watch that saw such a kill", Evidence{Trigger: (&Judge{Limits: sandbox.DefaultLimits()}).Beyond(late), Usage: late}, sandbox.StatusError, sandbox.CauseLost},
		{"cancelled, with such a kill", Evidence{Trigger: &Trigger{Kind: sandbox.CauseCancelled}, Usage: late}, sandbox.StatusKilled, sandbox.CauseCancelled},
		{"death by such a kill", Evidence{Death: &driver.Death{Kind: driver.DeathMemory}, Usage: late}, sandbox.StatusError, sandbox.CauseLost},
		{"death with refused forks", Evidence{Death: &driver.Death{Kind: driver.DeathAgent}, Usage: denied}, sandbox.StatusKilled, sandbox.CauseProcesses},
		{"death beats exit", Evidence{Death: &driver.Death{Kind: driver.DeathAgent}, Exit: &Exit{}}, sandbox.StatusError, sandbox.CauseLost},
		{"unknown death", Evidence{Death: &driver.Death{Kind: driver.DeathUnknown}}, sandbox.StatusError, sandbox.CauseLost},
		{"no end seen", Evidence{Usage: noOOM}, sandbox.StatusError, sandbox.CauseLost},
		{"what is left behind went on forking", Evidence{Usage: driver.Usage{ProcessesDenied: 50}, Exit: &Exit{}, Floods: true}, sandbox.StatusKilled, sandbox.CauseProcesses},
		{"what is left behind was refused a fork", Evidence{Usage: denied, Exit: &Exit{}}, sandbox.StatusSucceeded, sandbox.CauseExited},
		{"held alone is no cause", Evidence{Exit: &Exit{}}, sandbox.StatusSucceeded, sandbox.CauseExited},
		{"success beats full disks", Evidence{Usage: noOOM, Exit: &Exit{}}, sandbox.StatusSucceeded, sandbox.CauseExited},
		{"SIGSYS beats a full disk", Evidence{Usage: noOOM, Exit: &Exit{Signal: sigSys}}, sandbox.StatusFailed, sandbox.CauseSyscall},
		{"SIGSYS of a shell's child", Evidence{Usage: driver.Usage{Killed: "ptrace"}, Exit: &Exit{Code: 128 + sigSys}}, sandbox.StatusFailed, sandbox.CauseSyscall},
		{"a SIGSYS of the program's own", Evidence{Exit: &Exit{Signal: sigSys}}, sandbox.StatusFailed, sandbox.CauseSignaled},
		{"an exit status like SIGSYS", Evidence{Exit: &Exit{Code: 128 + sigSys}}, sandbox.StatusFailed, sandbox.CauseExited},
		{"SIGXFSZ", Evidence{Usage: driver.Usage{DiskPeak: sandbox.DefaultLimits().FileSizeBytes}, Exit: &Exit{Signal: sigXFSZ}}, sandbox.StatusFailed, sandbox.CauseFileSize},
		{"a SIGXFSZ of the program's own", Evidence{Usage: driver.Usage{DiskPeak: 4096}, Exit: &Exit{Signal: sigXFSZ}}, sandbox.StatusFailed, sandbox.CauseSignaled},
		{"a SIGXCPU of the program's own", Evidence{Exit: &Exit{Signal: 24}}, sandbox.StatusFailed, sandbox.CauseSignaled},
		{"disk beats inodes", Evidence{Usage: noOOM, Exit: &Exit{Code: 1}}, sandbox.StatusFailed, sandbox.CauseDisk},
		{"inodes beat processes", Evidence{Usage: driver.Usage{InodesFull: true, ProcessesDenied: 5}, Exit: &Exit{Code: 1}}, sandbox.StatusFailed, sandbox.CauseInodes},
		{"processes beat the exit code", Evidence{Usage: denied, Exit: &Exit{Code: 1}}, sandbox.StatusFailed, sandbox.CauseProcesses},
		{"processes beat the signal", Evidence{Usage: denied, Exit: &Exit{Signal: 6}}, sandbox.StatusFailed, sandbox.CauseProcesses},
		{"as many processes as may be, and a failure", Evidence{Usage: driver.Usage{ProcessesFull: true}, Exit: &Exit{Code: 1}}, sandbox.StatusFailed, sandbox.CauseProcesses},
		{"as many processes as may be, and success", Evidence{Usage: driver.Usage{ProcessesFull: true}, Exit: &Exit{}}, sandbox.StatusSucceeded, sandbox.CauseExited},
		{"signal", Evidence{Exit: &Exit{Signal: 11}}, sandbox.StatusFailed, sandbox.CauseSignaled},
		{"exit code", Evidence{Exit: &Exit{Code: 3}}, sandbox.StatusFailed, sandbox.CauseExited},
		{"success", Evidence{Exit: &Exit{}}, sandbox.StatusSucceeded, sandbox.CauseExited},
	}
}

func TestVerdictPrecedence(t *testing.T) {
	limits := sandbox.DefaultLimits()
	for _, c := range verdicts(t) {
		t.Run(c.name, func(t *testing.T) {
			c.e.Limits = limits
			status, cause := Of(c.e)
			if status != c.status || cause.Kind != c.cause {
				t.Errorf("%s by %s, want %s by %s", status, cause.Kind, c.status, c.cause)
			}
			if cause.Evidence == "" && c.e.Trigger == nil && c.e.Death == nil {
				t.Error("without evidence")
			}
		})
	}
}

// A cause that is a limit names it, what was observed, and what raises it, as
// a request has it.
func TestLimitCausesAreComplete(t *testing.T) {
	limits := sandbox.DefaultLimits()
	for _, info := range sandbox.LimitTable() {
		if info.Cause == sandbox.CauseOpenFiles { // the kernel leaves no evidence of it
			continue
		}
		_, cause := Of(Evidence{Limits: limits, Trigger: &Trigger{info.Cause, limits.Get(info.Field) + 1, "evidence"}})
		if cause.Limit != limits.Get(info.Field) || cause.Observed != cause.Limit+1 {
			t.Errorf("%s: limit %d, observed %d", info.Field, cause.Limit, cause.Observed)
		}
		if !strings.Contains(cause.Hint, fmt.Sprintf(`"limits": {"%s": %d}`, info.Field, 2*cause.Limit)) {
			t.Errorf("%s: the hint is %q", info.Field, cause.Hint)
		}
	}
}

// A refused fork means that the limit was reached. Our own count of processes,
// which can be a little off, does not make it look as if it had been passed.
func TestProcessesAreNotObservedAboveTheLimit(t *testing.T) {
	limits := sandbox.DefaultLimits()
	usage := driver.Usage{ProcessesDenied: 5, ProcessesPeak: limits.Processes + 1}
	if _, cause := Of(Evidence{Limits: limits, Usage: usage, Exit: &Exit{Code: 1}}); cause.Observed != limits.Processes {
		t.Errorf("observed %d of %d", cause.Observed, limits.Processes)
	}
}

// Node waits for ever for threads that it was refused: more time does not help it.
func TestWallTimeOfAProgramThatWasRefusedProcesses(t *testing.T) {
	limits := sandbox.DefaultLimits()
	limits.Processes = 4
	for name, c := range map[string]struct {
		usage driver.Usage
		want  string
	}{
		"refused, and idle":     {driver.Usage{ProcessesDenied: 6, CPUNanos: 15e6}, `the kernel refused 6 fork(s) (EAGAIN), and then the program did next to nothing: "limits": {"processes": 64}, or else "limits": {"wall_time_ms": 60000}`},
		"refused, not counted":  {driver.Usage{ProcessesDenied: 1, ProcessesFull: true, ProcessesPeak: 5}, `5 processes and threads were seen at once, and then the program did next to nothing: "limits": {"processes": 64}, or else "limits": {"wall_time_ms": 60000}`},
		"refused, and computes": {driver.Usage{ProcessesDenied: 6, CPUNanos: 20e9}, `raise it if the program is right to need more: "limits": {"wall_time_ms": 60000}`},
		"not refused":           {driver.Usage{}, `raise it if the program is right to need more: "limits": {"wall_time_ms": 60000}`},
	} {
		s, cause := Of(Evidence{Limits: limits, Usage: c.usage, Trigger: &Trigger{sandbox.CauseWallTime, limits.WallTimeMS, "time"}})
		if s != sandbox.StatusKilled || cause.Kind != sandbox.CauseWallTime || cause.Hint != c.want {
			t.Errorf("%s: %s by %s, hint %s", name, s, cause.Kind, cause.Hint)
		}
	}
}

func TestSince(t *testing.T) {
	base := driver.Usage{CPUNanos: 10, OOMKills: 1, ProcessesDenied: 2, ReadBytes: 3, WrittenBytes: 4, MemoryPeak: 5}
	got := Since(base, base)
	if got.CPUNanos != 0 || got.OOMKills != 0 || got.ProcessesDenied != 0 || got.ReadBytes != 0 || got.WrittenBytes != 0 || got.MemoryPeak != 5 {
		t.Errorf("nothing happened since, and that is %+v", got)
	}
	base.MemoryLate = true
	again := base
	again.OOMKills++
	if Since(base, base).MemoryLate || !Since(again, base).MemoryLate {
		t.Error("it is not the kills since then that the limit was late for")
	}
	if got := Since(driver.Usage{}, base); got.CPUNanos != 0 {
		t.Errorf("a counter that fell gives %d", got.CPUNanos)
	}
}

func TestSignalName(t *testing.T) {
	for n, want := range map[int]string{1: "SIGHUP", 9: "SIGKILL", 31: "SIGSYS", 34: "SIG34", 0: "SIG0", -1: "SIG-1"} {
		if got := SignalName(n); got != want {
			t.Errorf("%d is %q, not %q", n, got, want)
		}
	}
}

// The page of errors says which status goes with which cause.
func TestErrorsPageHasOurStatuses(t *testing.T) {
	possible := map[sandbox.CauseKind]map[sandbox.Status]bool{}
	for _, c := range verdicts(t) {
		kind := c.cause
		if possible[kind] == nil {
			possible[kind] = map[sandbox.Status]bool{}
		}
		possible[kind][c.status] = true
	}
	for _, kind := range []sandbox.CauseKind{sandbox.CauseCPUTime, sandbox.CauseProcesses, sandbox.CauseOutput} { // of a watch
		possible[kind] = map[sandbox.Status]bool{sandbox.StatusKilled: true, sandbox.StatusFailed: possible[kind] != nil}
	}
	page, err := os.ReadFile("../../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, statuses := range possible {
		var words []string
		for _, s := range []sandbox.Status{sandbox.StatusSucceeded, sandbox.StatusFailed, sandbox.StatusKilled, sandbox.StatusError} {
			if statuses[s] {
				words = append(words, string(s))
			}
		}
		if row := fmt.Sprintf("| `%s` | %s |", kind, strings.Join(words, " or ")); !strings.Contains(string(page), row) {
			t.Errorf("the page lacks %s", row)
		}
	}
}

// What a process may have more of it asks for itself; the rest its sandbox has.
func TestHintsOfProcesses(t *testing.T) {
	limits := sandbox.DefaultLimits()
	for _, info := range sandbox.LimitTable() {
		if info.Cause == "" {
			continue
		}
		c := Evidence{Limits: limits, Living: true}.LimitCause(info.Cause, 1, "why")
		if own := info.Field == "wall_time_ms"; strings.Contains(c.Hint, `"limits": {`) == own || strings.Contains(c.Hint, "create a sandbox") == own {
			t.Errorf("%s: %q", info.Field, c.Hint)
		}
	}
}

// The limit that a hint proposes is at least twice the old one where that is allowed,
// is accepted, and reads back as it is written.
func TestRaised(t *testing.T) {
	for _, info := range sandbox.LimitTable() {
		for _, limit := range []int64{info.Min, info.Min + 1, 12345678 % info.Max, info.Max / 2, info.Max - 1} {
			if info.Check(limit) != nil {
				continue
			}
			more := raised(sandbox.Cause{Limit: limit}, info)
			if more <= limit || more < min(2*limit, info.Max) || info.Check(more) != nil {
				t.Errorf("%s: %d proposes %d", info.Field, limit, more)
			}
			if read, err := sandbox.ParseSize(sandbox.FormatSize(more)); info.Unit == sandbox.UnitBytes && (err != nil || read != more) {
				t.Errorf("%s: %d reads back as %d, %v", info.Field, more, read, err)
			}
		}
		if c := (Evidence{Limits: limitsOf(info.Field, info.Max)}).LimitCause(info.Cause, 1, ""); c.Hint != "" {
			t.Errorf("%s cannot be raised: %s", info.Field, c.Hint)
		}
		if info.Cause == sandbox.CauseOutput {
			for observed, want := range map[int64]int64{0: 2 << 20, 17 << 20: 32 << 20, 1 << 62: info.Max} {
				if more := raised(sandbox.Cause{Limit: 1 << 20, Observed: observed}, info); more != want {
					t.Errorf("%d bytes of output propose %d", observed, more)
				}
			}
		}
	}
}

func limitsOf(field string, v int64) (l sandbox.Limits) {
	l.Set(field, v)
	return l
}
