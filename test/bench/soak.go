package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// atATime is how many sandboxes the soak keeps in flight.
const atATime = 32

// soak makes and destroys many sandboxes and compares what is there before and
// after.
func soak(ctx context.Context, o options, r *report) error {
	if o.soak == 0 {
		return nil
	}
	r.section(fmt.Sprintf("%d sandboxes created and destroyed, %d at a time", o.soak, atATime))
	m, err := newMaker(ctx, o)
	if err != nil {
		return err
	}
	if _, _, err := m.many(ctx, 2*atATime, atATime); err != nil { // threads and pools reach their size
		return err
	}
	before := residue()
	took, all, err := m.many(ctx, o.soak, atATime)
	if err != nil {
		return err
	}
	after := settled(before)
	part := min(1000, len(took)/4)
	first, last := took[:part].median(), took[len(took)-part:].median()
	r.table([][]string{
		{"what", "value"},
		{"failures", "0"},
		{"per second", fmt.Sprintf("%.0f", float64(o.soak)/all.Seconds())},
		{fmt.Sprintf("median of the first %d", part), ms(first)},
		{fmt.Sprintf("median of the last %d", part), ms(last)},
		{"left before and after", fmt.Sprintf("%v → %v", before, after)},
	})
	r.line("")
	r.target("the last thousand no slower than 1.2 × the first", float64(last) <= 1.2*float64(first), ratio(last, first))
	if err := m.driver.Close(); err != nil {
		return err
	}
	if !maps.Equal(before, after) {
		return fmt.Errorf("something is left: %v before, %v after", before, after)
	}
	return nil
}

// settled waits for what the kernel frees late.
func settled(want map[string]int) map[string]int {
	got := residue()
	for deadline := time.Now().Add(10 * time.Second); !maps.Equal(want, got) && time.Now().Before(deadline); got = residue() {
		runtime.GC()
		time.Sleep(100 * time.Millisecond)
	}
	return got
}

// residue counts what a sandbox could leave behind.
func residue() map[string]int {
	count := map[string]int{"goroutines": runtime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		count["descriptors"] = len(fds)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		count["mounts"] = strings.Count(string(mounts), "\n")
	}
	count["pids"], count["net namespaces"] = processes()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/pinfold/") {
			count["cgroups"]++
		}
		return nil
	})
	if ids, err := os.ReadDir("/run/pinfold/ids"); err == nil {
		count["leased ids"] = len(ids)
	}
	if temp, err := filepath.Glob("/tmp/pinfold*"); err == nil {
		count["temporary files"] = len(temp)
	}
	return count
}

// processes counts sandboxes' processes and the network namespaces in use.
func processes() (agents, namespaces int) {
	entries, _ := os.ReadDir("/proc")
	nets := map[string]bool{}
	for _, e := range entries {
		if exe, err := os.Readlink("/proc/" + e.Name() + "/exe"); err == nil && strings.Contains(exe, "pinfold-agent") {
			agents++
		}
		if net, err := os.Readlink("/proc/" + e.Name() + "/ns/net"); err == nil {
			nets[net] = true
		}
	}
	return agents, len(nets)
}
