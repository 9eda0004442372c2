package engine

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// fate is the part of a result that says how a program ended.
type fate struct {
	Status   sandbox.Status
	Cause    sandbox.CauseKind
	Code     int // -1: none
	Signal   string
	TimedOut bool
}

func fateOf(r *sandbox.Result) fate {
	f := fate{r.Status, r.Cause.Kind, -1, r.Signal, r.TimedOut}
	if r.ExitCode != nil {
		f.Code = *r.ExitCode
	}
	return f
}

// Every way to end gives its own cause.
func TestCauses(t *testing.T) {
	soon := 15 * time.Millisecond
	flood := func(p *fake.Process) fake.Exit {
		block := zeros(1 << 20)
		for {
			if _, err := p.Stdout.Write(block); err != nil {
				return fake.Exit{}
			}
		}
	}
	dies := func(d driver.Death) func(p *fake.Process) fake.Exit {
		return func(p *fake.Process) fake.Exit {
			p.Machine.Die(d)
			return fake.Exit{}
		}
	}
	for _, c := range []struct {
		name   string
		limits sandbox.Limits
		script fake.Script
		want   fate
	}{
		{"success", sandbox.Limits{}, fake.Script{Program: exits(fake.Exit{})}, fate{sandbox.StatusSucceeded, sandbox.CauseExited, 0, "", false}},
		{"exit code", sandbox.Limits{}, fake.Script{Program: exits(fake.Exit{Code: 3})}, fate{sandbox.StatusFailed, sandbox.CauseExited, 3, "", false}},
		{"signal", sandbox.Limits{}, fake.Script{Program: exits(fake.Exit{Signal: 11})}, fate{sandbox.StatusFailed, sandbox.CauseSignaled, -1, "SIGSEGV", false}},
		{
			"wall time",
			sandbox.Limits{WallTimeMS: 20},
			fake.Script{Program: sleeps},
			fate{sandbox.StatusKilled, sandbox.CauseWallTime, -1, "SIGKILL", true},
		},
		{
			"CPU time",
			sandbox.Limits{CPUTimeMS: 100},
			fake.Script{Program: sleeps, Usage: func(life time.Duration) driver.Usage { return driver.Usage{CPUNanos: 8 * life.Nanoseconds()} }},
			fate{sandbox.StatusKilled, sandbox.CauseCPUTime, -1, "SIGKILL", true},
		},
		{
			"OOM kill of a grandchild",
			sandbox.Limits{},
			fake.Script{Program: sleeps, Usage: after(soon, driver.Usage{OOMKills: 1})},
			fate{sandbox.StatusKilled, sandbox.CauseMemory, -1, "SIGKILL", false},
		},
		{
			"memory without a kernel limit",
			sandbox.Limits{MemoryBytes: 8 << 20},
			fake.Script{Program: sleeps, Usage: after(soon, driver.Usage{MemoryBytes: 9 << 20})},
			fate{sandbox.StatusKilled, sandbox.CauseMemory, -1, "SIGKILL", false},
		},
		{
			"OOM kill of the machine",
			sandbox.Limits{},
			fake.Script{Program: dies(driver.Death{Kind: driver.DeathMemory})},
			fate{sandbox.StatusKilled, sandbox.CauseMemory, -1, "", false},
		},
		{
			"OOM kill before the agent says that the program started",
			sandbox.Limits{},
			fake.Script{Starting: func(m *fake.Machine) { m.Die(driver.Death{Kind: driver.DeathMemory}) }},
			fate{sandbox.StatusKilled, sandbox.CauseMemory, -1, "", false},
		},
		{
			"fork bomb",
			sandbox.Limits{Processes: 8},
			fake.Script{Program: sleeps, Usage: func(life time.Duration) driver.Usage {
				return driver.Usage{ProcessesDenied: life.Milliseconds(), Processes: 8}
			}},
			fate{sandbox.StatusKilled, sandbox.CauseProcesses, -1, "SIGKILL", false},
		},
		{
			"a thousand refused forks, and the program coped",
			sandbox.Limits{Processes: 8},
			fake.Script{
				Program: func(p *fake.Process) fake.Exit { p.Sleep(3 * time.Second); return fake.Exit{} },
				Usage:   after(soon, driver.Usage{ProcessesDenied: 1000, Processes: 8}),
			},
			fate{sandbox.StatusSucceeded, sandbox.CauseExited, 0, "", false},
		},
		{
			"one refused fork",
			sandbox.Limits{},
			fake.Script{Program: exits(fake.Exit{Code: 1}), Usage: after(0, driver.Usage{})},
			fate{sandbox.StatusFailed, sandbox.CauseExited, 1, "", false},
		},
		{
			"full disk",
			sandbox.Limits{},
			fake.Script{Program: exits(fake.Exit{Code: 1}), Usage: after(0, driver.Usage{DiskFull: true})},
			fate{sandbox.StatusFailed, sandbox.CauseDisk, 1, "", false},
		},
		{
			"full disk, and the program coped",
			sandbox.Limits{},
			fake.Script{Program: exits(fake.Exit{}), Usage: after(0, driver.Usage{DiskFull: true})},
			fate{sandbox.StatusSucceeded, sandbox.CauseExited, 0, "", false},
		},
		{
			"no inodes",
			sandbox.Limits{},
			fake.Script{Program: exits(fake.Exit{Code: 1}), Usage: after(0, driver.Usage{InodesFull: true})},
			fate{sandbox.StatusFailed, sandbox.CauseInodes, 1, "", false},
		},
		{
			"flood",
			sandbox.Limits{OutputBytes: 1000},
			fake.Script{Program: flood},
			fate{sandbox.StatusKilled, sandbox.CauseOutput, -1, "SIGKILL", false},
		},
		{
			"forbidden call",
			sandbox.Limits{},
			fake.Script{Program: exits(fake.Exit{Signal: int(syscall.SIGSYS)}), Usage: after(0, driver.Usage{Killed: "ptrace"})},
			fate{sandbox.StatusFailed, sandbox.CauseSyscall, -1, "SIGSYS", false},
		},
		{"file size", sandbox.Limits{}, fake.Script{Program: exits(fake.Exit{Signal: int(syscall.SIGXFSZ)}), Usage: after(0, driver.Usage{DiskPeak: sandbox.DefaultLimits().FileSizeBytes})}, fate{sandbox.StatusFailed, sandbox.CauseFileSize, -1, "SIGXFSZ", false}},
		{
			"the agent dies",
			sandbox.Limits{},
			fake.Script{Program: dies(driver.Death{Kind: driver.DeathAgent, Evidence: "it exited"})},
			fate{sandbox.StatusError, sandbox.CauseLost, -1, "", false},
		},
		{
			"the agent ignores the order to kill",
			sandbox.Limits{WallTimeMS: 20},
			fake.Script{Program: sleeps, KillAll: func(stop <-chan struct{}) { <-stop }},
			fate{sandbox.StatusKilled, sandbox.CauseWallTime, -1, "SIGKILL", true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEngine(t, always(c.script))
			r := run(t, e, shell(c.limits))
			if diff := cmp.Diff(c.want, fateOf(r)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, r.Cause)
			}
		})
	}
}

func TestSyscallIsNamed(t *testing.T) {
	e, _ := newEngine(t, always(fake.Script{
		Program: exits(fake.Exit{Signal: int(syscall.SIGSYS)}),
		Usage:   after(0, driver.Usage{Killed: "ptrace", Denied: []sandbox.DeniedSyscall{{Name: "ptrace", Count: 1}}}),
	}))
	r := run(t, e, shell(sandbox.Limits{}))
	if r.Cause.Syscall != "ptrace" || len(r.DeniedSyscalls) != 1 {
		t.Errorf("%+v, %+v", r.Cause, r.DeniedSyscalls)
	}
}

// What was there before the program is not the program's doing.
func TestBaselineIsTakenOff(t *testing.T) {
	e, _ := newEngine(t, always(fake.Script{
		Program: exits(fake.Exit{}),
		Usage: func(time.Duration) driver.Usage {
			return driver.Usage{CPUNanos: 1e15, OOMKills: 3, ProcessesDenied: 1e6}
		},
	}))
	r := run(t, e, shell(sandbox.Limits{}))
	if r.Status != sandbox.StatusSucceeded || r.Usage.CPUMS != 0 {
		t.Errorf("%s, %+v, %+v", r.Status, r.Cause, r.Usage)
	}
}

// A program that coped with a thousand refused forks and leaves something behind has
// done nothing for which it could be ended; one that leaves a flood behind has.
func TestRefusedForksOfWhatIsLeftBehind(t *testing.T) {
	for name, c := range map[string]struct {
		life  time.Duration
		usage func(life time.Duration) driver.Usage
		want  fate
	}{
		"coped": {3 * time.Second, func(life time.Duration) driver.Usage {
			if life < time.Second {
				return driver.Usage{ProcessesDenied: life.Milliseconds(), Processes: 64}
			}
			return driver.Usage{ProcessesDenied: 1000, Processes: 2, CPUNanos: life.Nanoseconds()}
		}, fate{sandbox.StatusSucceeded, sandbox.CauseExited, 0, "", false}},
		"a flood": {50 * time.Millisecond, func(life time.Duration) driver.Usage {
			return driver.Usage{ProcessesDenied: life.Milliseconds(), Processes: 64}
		}, fate{sandbox.StatusKilled, sandbox.CauseProcesses, 0, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := newEngine(t, always(fake.Script{Usage: c.usage, Program: func(p *fake.Process) fake.Exit {
					p.Held = true
					p.Sleep(c.life)
					return fake.Exit{}
				}}))
				r := run(t, e, shell(sandbox.Limits{Processes: 64}))
				if diff := cmp.Diff(c.want, fateOf(r)); diff != "" || !r.PipesHeld {
					t.Errorf("(-want +got):\n%s\n%+v", diff, r.Cause)
				}
			})
		})
	}
}

func TestPipesHeld(t *testing.T) {
	e, _ := newEngine(t, always(fake.Script{Program: func(p *fake.Process) fake.Exit {
		p.Held = true
		return fake.Exit{}
	}}))
	if r := run(t, e, shell(sandbox.Limits{})); !r.PipesHeld || r.Status != sandbox.StatusSucceeded {
		t.Errorf("held %v, %s", r.PipesHeld, r.Status)
	}
}
