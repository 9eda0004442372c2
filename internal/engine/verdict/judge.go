package verdict

import (
	"fmt"
	"time"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Judge tells from the readings of a machine's counters, as they come, when what runs
// in it must be ended. It is not safe for concurrent use.
type Judge struct {
	Limits sandbox.Limits
	// KillOne says that the kernel ends single processes for want of memory, which
	// then say so themselves.
	KillOne bool

	forks forkJudge
}

// Beyond says which limit a reading is beyond; nil: none.
func (j *Judge) Beyond(u driver.Usage) *Trigger {
	l := j.Limits
	switch cpu := u.CPUNanos / 1e6; {
	case l.CPUTimeMS > 0 && cpu >= l.CPUTimeMS:
		return &Trigger{sandbox.CauseCPUTime, cpu, fmt.Sprintf("the process tree used %dms of CPU", cpu)}
	case u.OOMKills > 0 && !j.KillOne:
		c := Evidence{Limits: l, Usage: u}.MemoryCause()
		return &Trigger{c.Kind, c.Observed, c.Evidence}
	case u.MemoryBytes > l.MemoryBytes:
		return &Trigger{sandbox.CauseMemory, u.MemoryBytes, fmt.Sprintf("%d bytes of memory in use", u.MemoryBytes)}
	// Beyond these comes only what is watched, and not limited by the kernel.
	case u.DiskBytes > l.DiskBytes+watchedSlack && l.DiskBytes > 0:
		return &Trigger{sandbox.CauseDisk, u.DiskBytes, fmt.Sprintf("%d bytes on the sandbox's disk", u.DiskBytes)}
	case u.Inodes > l.Inodes && l.Inodes > 0:
		return &Trigger{sandbox.CauseInodes, u.Inodes, fmt.Sprintf("more than %d files and directories on the sandbox's disk", l.Inodes)}
	case u.Processes > watchedCrowd*l.Processes && l.Processes > 0:
		return &Trigger{sandbox.CauseProcesses, u.Processes, fmt.Sprintf("%d processes at once", u.Processes)}
	}
	return nil
}

// A disk that the kernel limits may read a little more than the limit for a moment, and
// so may a number of processes; a crowd of several times as many is one that it does not
// limit.
const (
	watchedSlack = 1 << 20
	watchedCrowd = 4
)

// Flood says whether what runs does nothing but fork at the limit. After that it
// begins anew. tasks is nil where the machine's cannot be seen.
func (j *Judge) Flood(now time.Time, u driver.Usage, tasks driver.TaskMeter) *Trigger {
	if !j.forks.flood(now, u, j.Limits.Processes, tasks) {
		return nil
	}
	j.forks = forkJudge{}
	c := Evidence{Limits: j.Limits, Usage: u}.Refusal(sandbox.CauseProcesses)
	return &Trigger{c.Kind, c.Observed, c.Evidence + " and the program did nothing but go on"}
}

// Since takes the baseline off the counters that only grow.
func Since(u, base driver.Usage) driver.Usage {
	u.CPUNanos = max(0, u.CPUNanos-base.CPUNanos)
	u.OOMKills = max(0, u.OOMKills-base.OOMKills)
	u.MemoryLate = u.MemoryLate && u.OOMKills > 0
	u.ProcessesDenied = max(0, u.ProcessesDenied-base.ProcessesDenied)
	u.ReadBytes = max(0, u.ReadBytes-base.ReadBytes)
	u.WrittenBytes = max(0, u.WrittenBytes-base.WrittenBytes)
	return u
}

// Own is Since where others use the machine as well: it also takes off what they had
// met before, since that a limit was once reached stays in the readings for good.
func Own(u, base driver.Usage) driver.Usage {
	u = Since(u, base)
	u.DiskFull = u.DiskFull && !base.DiskFull
	u.InodesFull = u.InodesFull && !base.InodesFull
	u.ProcessesFull = u.ProcessesFull && !base.ProcessesFull
	if u.Killed == base.Killed {
		u.Killed = ""
	}
	return u
}

// UsageOf is a reading as results and descriptions show it.
func UsageOf(u driver.Usage, wall time.Duration) sandbox.Usage {
	return sandbox.Usage{
		WallMS: max(0, wall.Milliseconds()), CPUMS: u.CPUNanos / 1e6, MemoryPeakBytes: u.MemoryPeak,
		ProcessesPeak: u.ProcessesPeak, DiskPeakBytes: u.DiskPeak, InodesPeak: u.InodesPeak,
		ReadBytes: u.ReadBytes, WrittenBytes: u.WrittenBytes,
	}
}
