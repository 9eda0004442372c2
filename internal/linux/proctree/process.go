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

// EachTask visits the threads of the processes: the number of each, and its CPU time in
// nanoseconds, all of it (exact) and in the kernel (by clock ticks of 10 ms).
func EachTask(pids []int, visit func(task int, cpu, system int64)) {
	for _, pid := range pids[:min(len(pids), maxProcesses)] {
		dir := procDir(pid) + "/task"
		entries, _ := os.ReadDir(dir) // it may have ended
		for _, e := range entries {
			task, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			ran, _ := os.ReadFile(dir + "/" + e.Name() + "/schedstat")
			stat, err := os.ReadFile(dir + "/" + e.Name() + "/stat")
			if fields := bytes.Fields(ran); err == nil && len(fields) > 0 {
				visit(task, number(fields[0]), systemNanos(stat))
			}
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
