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
	"strconv"
)

// maxProcesses bounds a walk.
const maxProcesses = 8192

// Usage is one reading.
type Usage struct {
	CPUNanos    int64 // of living processes and of dead ones that were waited for
	MemoryBytes int64 // resident memory that is not shared with others
	Tasks       int64 // threads
}

// ticks is the kernel's USER_HZ, which is 100 on every architecture we build for.
const ticks = 100

// Read walks the tree below pid.
func Read(pid int) Usage {
	var u Usage
	queue := []int{pid}
	for n := 0; n < len(queue) && n < maxProcesses; n++ {
		dir := "/proc/" + strconv.Itoa(queue[n])
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has ended
		}
		cpu, threads := parseStat(stat)
		u.CPUNanos += cpu
		u.Tasks += threads
		statm, _ := os.ReadFile(dir + "/statm")
		u.MemoryBytes += parseStatm(statm)
		queue = append(queue, children(dir)...)
	}
	return u
}

// children lists a process's children. Each hangs on the thread that made it.
func children(dir string) (pids []int) {
	tasks, err := os.Open(dir + "/task")
	if err != nil {
		return nil // it has ended
	}
	defer tasks.Close() //nolint:errcheck // only read
	threads, _ := tasks.Readdirnames(maxProcesses)
	for _, thread := range threads {
		list, _ := os.ReadFile(dir + "/task/" + thread + "/children")
		for _, f := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
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

// parseStatm returns resident minus shared memory from a statm file.
func parseStatm(b []byte) int64 {
	fields := bytes.Fields(b)
	if len(fields) < 3 {
		return 0
	}
	return max(0, number(fields[1])-number(fields[2])) * int64(os.Getpagesize())
}

func number(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return n
}
