// Package container is what machines that another program makes as containers (an engine, a
// runtime) have in common: where they can be written to, what they show of a computer, and
// how their counters are read while their disk is a tmpfs of ours. It makes nothing, and
// knows no such program.
package container

// Place is a directory of a machine that can be written to, and where it is on its disk.
type Place struct {
	Path string // inside; "": the user's home
	Dir  string // on the disk
	Mode uint32
	Own  bool // the user's
}

// Places are all of a machine. They are one file system, so that one number limits them all.
func Places(home string) []Place {
	return []Place{
		{home, "home", 0o755, true},
		{"/tmp", "tmp", 0o1777, false},
		{"/var/tmp", "vartmp", 0o1777, false},
		{"/dev/shm", "shm", 0o1777, false},
	}
}

// ShownFiles are those of /proc over which runtimes let us lay our own. /sys is ours as a
// whole.
var ShownFiles = []string{"/proc/cpuinfo", "/proc/stat", "/proc/meminfo", "/proc/loadavg", "/proc/uptime"}

// CPUPeriodUS is the period in which processor time is given out, in microseconds.
const CPUPeriodUS = 100_000

// Rlimit is a limit that holds for the agent and all it starts.
type Rlimit struct {
	Name  string // "core"
	Value int64
}

// Rlimits are what else would be a runtime's default, and takes memory that nobody counts, or
// priority.
func Rlimits() []Rlimit {
	return []Rlimit{{"core", 0}, {"memlock", 64 << 10}, {"msgqueue", 0}, {"sigpending", 1024}, {"nice", 0}, {"rtprio", 0}}
}
