//go:build linux

// Package proctree sums up what a process and all its descendants use, from
// /proc. It is the fallback where no cgroup can be had: a reading is a walk, not
// a counter, so a process that comes and goes between two readings shows only
// in the CPU time of the parent that waited for it, and memory can be exceeded
// between two readings. Nothing is enforced here.
//
// See proc(5) for the files.
package proctree

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

// maxProcesses bounds a walk.
const maxProcesses = 8192

// Usage is one reading.
type Usage struct {
	CPUNanos    int64 // of living processes and of dead ones that were waited for
	MemoryBytes int64 // resident memory but for files; what processes share counts for each
	Tasks       int64 // threads, those of the first process excluded
}

// ticks is the kernel's USER_HZ, which is 100 on every architecture we build for.
const ticks = 100

// Read walks the tree below pid.
func Read(pid int) Usage {
	var u Usage
	walk(pid, maxProcesses, func(dir string) {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return // it has ended
		}
		cpu, threads := parseStat(stat)
		u.CPUNanos += cpu
		u.Tasks += threads
		status, _ := os.ReadFile(dir + "/status")
		u.MemoryBytes += sum(status, "RssAnon:", "RssShmem:")
		if dir == procDir(pid) {
			u.Tasks = 0
		}
	})
	return u
}

// Memory returns the memory of the tree below pid with what processes share
// counted once: Pss_Anon, and Pss_Shmem as far as it is more than onDisk, the
// bytes of files that lie in memory and count elsewhere. The kernel looks at
// every page for it, so it costs up to a millisecond for each hundred MiB.
func Memory(pid int, onDisk int64) int64 {
	var anon, shmem int64
	walk(pid, maxProcesses, func(dir string) {
		prefix := "Pss_"
		text, err := os.ReadFile(dir + "/smaps_rollup")
		if err != nil { // not for us to see: the larger number
			prefix = "Rss"
			text, _ = os.ReadFile(dir + "/status")
		}
		anon += sum(text, prefix+"Anon:")
		shmem += sum(text, prefix+"Shmem:")
	})
	return anon + max(0, shmem-onDisk)
}

func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// walk visits the /proc directory of pid and of every process below it, so many at most.
func walk(pid, most int, visit func(dir string)) {
	queue := []int{pid}
	for n := 0; n < len(queue) && n < most; n++ {
		dir := procDir(queue[n])
		visit(dir)
		queue = append(queue, children(dir)...)
	}
}

// children lists a process's children. Each hangs on the thread that made it.
func children(dir string) (pids []int) {
	for _, thread := range threads(dir, maxProcesses) {
		list, _ := os.ReadFile(dir + "/task/" + thread + "/children")
		for _, f := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// threads names those of a process, so many at most; none when it has ended.
func threads(dir string, most int) []string {
	tasks, err := os.Open(dir + "/task")
	if err != nil {
		return nil
	}
	defer tasks.Close() //nolint:errcheck // only read
	names, _ := tasks.Readdirnames(most)
	return names
}

// parseStat returns the CPU time and the number of threads from a stat file.
// The command name may contain anything, so fields are counted from the last
// closing parenthesis.
func parseStat(b []byte) (cpuNanos, threads int64) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, 0
	}
	fields := bytes.Fields(b[i+1:])
	const utime, stime, cutime, cstime, numThreads = 11, 12, 13, 14, 17 // the first is the state, field 3 of proc(5)
	if len(fields) <= numThreads {
		return 0, 0
	}
	for _, n := range []int{utime, stime, cutime, cstime} {
		cpuNanos += number(fields[n]) * (1_000_000_000 / ticks)
	}
	return cpuNanos, number(fields[numThreads])
}

// systemNanos returns the time in the kernel from a stat file.
func systemNanos(stat []byte) int64 {
	const stime = 12 // of the fields after the name, see proc(5)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0
	}
	return number(fields[stime]) * (1_000_000_000 / ticks)
}

// sum adds up the named lines of a status or smaps_rollup file, in bytes. The
// names that a process chooses hold no line breaks there.
func sum(text []byte, names ...string) (total int64) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[2]) == "kB" && slices.Contains(names, string(fields[0])) {
			total += number(fields[1]) * 1024
		}
	}
	return total
}

func number(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return n
}
