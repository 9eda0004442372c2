package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Unshared is a process's memory that it shares with nobody, in bytes; zero
// where the kernel does not say.
func Unshared(pid int) int64 {
	f, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	values := sizes(f)
	return values["Private_Clean"] + values["Private_Dirty"]
}

// sizes reads lines of the form "Name: 12 kB", as bytes.
func sizes(text []byte) map[string]int64 {
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			values[strings.TrimSuffix(fields[0], ":")] = kb << 10
		}
	}
	return values
}

func meminfo() map[string]int64 {
	f, _ := os.ReadFile("/proc/meminfo")
	return sizes(f)
}

// memoryInUse is what the host has less available than it has.
func memoryInUse() int64 {
	m := meminfo()
	return m["MemTotal"] - m["MemAvailable"]
}

// children are a process's own.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []int
	for _, file := range files {
		list, _ := os.ReadFile(file) //nolint:gosec // below /proc
		for word := range strings.FieldsSeq(string(list)) {
			if n, err := strconv.Atoi(word); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// treeMemory is the unshared memory of everything below a process.
func treeMemory(pid int) (sum int64) {
	for _, c := range children(pid) {
		sum += Unshared(c) + treeMemory(c)
	}
	return sum
}

// agentMemory is the unshared memory of the one agent among our children,
// without the pages of its sealed executable: those are "private" only while
// one sandbox lives.
func agentMemory() int64 {
	for _, pid := range children(os.Getpid()) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || strings.TrimSpace(string(comm)) != "pinfold-agent" {
			continue
		}
		smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
		if err != nil {
			return 0
		}
		return private(string(smaps))
	}
	return 0
}

// private sums what is mapped from no file, or writable (proc_pid_maps(5)).
func private(smaps string) int64 {
	var sum int64
	shared := false
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-") && !strings.HasSuffix(fields[0], ":"):
			shared = fields[4] != "0" && !strings.Contains(fields[1], "w")
		case !shared && len(fields) > 1 && strings.HasPrefix(line, "Private_"):
			if kb, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				sum += kb << 10
			}
		}
	}
	return sum
}
