//go:build linux

package proctree

import (
	"bytes"
	"os"
	"strconv"
)

// Process is one of the host's. Another one may get its number later, but has not begun at
// the same tick of the kernel's clock.
type Process struct {
	PID   int
	Begun int64
}

// Named is the process with that number now; its Begun is 0 when there is none.
func Named(pid int) Process { return Process{pid, begun(pid)} }

// Lives says whether it is still there, and not dead.
func (p Process) Lives() bool { return p.Begun != 0 && p.Begun == begun(p.PID) }

// Children are the numbers of a process's children.
func Children(pid int) []int { return children(procDir(pid)) }

// Below are all processes below one, as far as they could be seen.
func Below(pid int) []Process { return Some(pid, maxProcesses) }

// Some are so many processes below one, at most.
func Some(pid, most int) (all []Process) {
	own := procDir(pid)
	walk(pid, most+1, func(dir string) {
		if n, err := strconv.Atoi(dir[len("/proc/"):]); err == nil && dir != own {
			all = append(all, Named(n))
		}
	})
	return all
}

// maxTasks bounds a look at the times of tasks, which costs ten times what a look at a
// process does.
const maxTasks = 2048

// EachTask visits the threads of the processes, so many at most: the number of each, and its
// CPU time in nanoseconds, all of it (exact) and in the kernel (by clock ticks of 10 ms).
func EachTask(pids []int, visit func(task int, cpu, system int64)) {
	left := maxTasks
	for _, pid := range pids {
		for _, name := range threads(procDir(pid), left) {
			task, err := strconv.Atoi(name)
			dir := procDir(pid) + "/task/" + name
			ran, _ := os.ReadFile(dir + "/schedstat")
			stat, _ := os.ReadFile(dir + "/stat")
			if fields := bytes.Fields(ran); err == nil && len(fields) > 0 {
				cpu, _ := strconv.ParseInt(string(fields[0]), 10, 64)
				visit(task, cpu, systemNanos(stat))
			}
			left--
		}
		if left <= 0 {
			return
		}
	}
}

// begun is when a process started; 0: there is none, or it is dead.
func begun(pid int) int64 {
	stat, err := os.ReadFile(procDir(pid) + "/stat")
	if err != nil {
		return 0
	}
	const state, start = 0, 19 // of the fields after the name, see proc(5)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start || fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[start]), 10, 64)
	return n
}
