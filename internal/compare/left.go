package compare

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// traces are what Pinfold has on this host at one moment, by a name that people understand.
type traces map[string]bool

// look lists mounts, control groups and temporary files that bear Pinfold's name, and the
// processes that are ours.
func look() traces {
	t := traces{}
	table, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(f[4], "pinfold") {
			t["mount "+f[4]] = true
		}
	}
	root := "/sys/fs/cgroup"
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // groups go while they are looked at
		}
		if strings.Contains(filepath.Base(filepath.Dir(path)), "pinfold") {
			t["control group "+path] = true
		}
		return nil
	})
	temporary, _ := filepath.Glob(filepath.Join(os.TempDir(), "pinfold*"))
	for _, name := range temporary {
		t["file "+name] = true
	}
	for pid := range processes() {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // proc_pid_stat(5): pid (name) state parent …
		end := strings.LastIndexByte(string(stat), ')')
		if f := strings.Fields(string(stat[end+1:])); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			t["process "+string(stat[:end+1])] = true
		}
	}
	return t
}

// goneWithin bounds how long what has ended may take to go.
const goneWithin = 10 * time.Second

// leftWithin lists what there is after that time at most and was not then.
func (t traces) leftWithin(most time.Duration) (left []string) {
	for deadline := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for trace := range look() {
			if !t[trace] {
				left = append(left, trace)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			slices.Sort(left)
			return left
		}
	}
}
