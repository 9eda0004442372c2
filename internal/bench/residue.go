package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// leftSince says what the benchmark has left behind; before are the processes below us
// from before anything was started. Processes may take a moment to go.
func (s *session) leftSince(before []int) (left []string) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		left = nil
		for _, pid := range children(os.Getpid()) {
			if !slices.Contains(before, pid) {
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				left = append(left, fmt.Sprintf("process %d (%s) is left", pid, strings.TrimSpace(string(name))))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := os.Lstat(s.dir); err == nil {
		left = append(left, s.dir+" is left")
	}
	return append(left, s.leftovers()...)
}

// leftovers asks the driver what dead processes have left on this host: a
// server that ended as it should has left nothing.
func (s *session) leftovers() (left []string) {
	if s.o.NewDriver == nil || s.o.Server != "" {
		return nil
	}
	d, err := s.o.NewDriver()
	if err != nil {
		return nil // nothing could be made, nothing is left
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Minute)
	defer cancel()
	found, err := d.Leftovers(ctx)
	if err != nil {
		left = append(left, "looking for what is left: "+err.Error())
	}
	for _, f := range found {
		left = append(left, fmt.Sprintf("%s %s was left by a process that had died, and is removed", f.Kind, f.Name))
	}
	if err := d.Close(); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// RemoveTree removes our directory. What a daemon left mounted in it is
// unmounted first: removing must not reach into what is mounted.
func RemoveTree(dir string) error {
	for range 3 {
		for _, m := range mountsBelow(dir) {
			if err := unmount(m); err != nil {
				return fmt.Errorf("%s is still mounted: %w", m, err)
			}
		}
	}
	if left := mountsBelow(dir); len(left) > 0 {
		return fmt.Errorf("%s is still mounted; %s is left", left[0], dir)
	}
	return os.RemoveAll(dir)
}

// mountsBelow lists the mount points below a directory, the deepest first.
func mountsBelow(dir string) (points []string) {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	table, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append([]string{fields[4]}, points...)
		}
	}
	return points
}
