//go:build linux

package drivertest

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

// shownOfProc are all names in /proc but those of processes.
var shownOfProc = []string{
	"cpuinfo", "filesystems", "loadavg", "meminfo", "mounts", "net", "self", "stat", "sys", "thread-self", "uptime", "version",
}

// shownOfSys are all files of /proc/sys and /sys, for one processor.
var shownOfSys = []string{
	"/proc/sys/fs/file-max",
	"/proc/sys/kernel/ngroups_max", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/pid_max",
	"/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/random/uuid",
	"/proc/sys/net/core/somaxconn",
	"/proc/sys/vm/max_map_count", "/proc/sys/vm/overcommit_memory",
	"/sys/devices/system/cpu/cpu0/topology/core_id", "/sys/devices/system/cpu/cpu0/topology/core_siblings",
	"/sys/devices/system/cpu/cpu0/topology/core_siblings_list", "/sys/devices/system/cpu/cpu0/topology/physical_package_id",
	"/sys/devices/system/cpu/cpu0/topology/thread_siblings", "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
	"/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible", "/sys/devices/system/cpu/present",
}

// A sandbox's limits of its control group are where its version has them.
var (
	limitsV1 = []string{"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	limitsV2 = []string{"/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max"}
)

// needsOwnFiles skips where the driver says that its machines share the host's file tree.
func (h *harness) needsOwnFiles() {
	h.Helper()
	if !h.enforced(sandbox.FeatureMountNS) {
		h.Skip("the report says that the host's /proc and /sys are seen")
	}
}

// What programs find in /proc and /sys is a computer as large as the limits.
func (h *harness) testComputer() {
	h.needsOwnFiles()
	for _, limits := range []sandbox.Limits{{MemoryBytes: 192 << 20, CPUs: 0.5}, {MemoryBytes: 300 << 20, CPUs: 1.5}} {
		b := h.probed(limits)
		var files map[string]string
		b.ask(&files, append([]string{"read"}, "/proc/cpuinfo", "/proc/stat", "/proc/meminfo", "/proc/uptime", "/proc/loadavg",
			"/proc/mounts", "/proc/self/mounts", "/proc/version", "/proc/sys/kernel/random/boot_id",
			"/sys/devices/system/cpu/online", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")...)
		n := max(1, min(int(math.Ceil(limits.CPUs)), runtime.NumCPU()))
		online := "0"
		if n > 1 {
			online = fmt.Sprintf("0-%d", n-1)
		}
		memory := strconv.FormatInt(limits.MemoryBytes, 10)
		want := map[string]any{
			"processors": n, "processors in stat": n, "online": online,
			"memory": fmt.Sprintf("MemTotal:       %8d kB", limits.MemoryBytes>>10), "limit of memory": true, "mounts": true,
		}
		got := map[string]any{
			"processors":         strings.Count(files["/proc/cpuinfo"], "processor\t"),
			"processors in stat": strings.Count(files["/proc/stat"], "cpu") - 1,
			"online":             strings.TrimSpace(files["/sys/devices/system/cpu/online"]),
			"memory":             strings.SplitN(files["/proc/meminfo"], "\n", 2)[0],
			"limit of memory": strings.TrimSpace(files["/sys/fs/cgroup/memory.max"]) == memory ||
				strings.TrimSpace(files["/sys/fs/cgroup/memory/memory.limit_in_bytes"]) == memory,
			"mounts": files["/proc/mounts"] != "" && files["/proc/mounts"] == files["/proc/self/mounts"],
		}
		if diff := cmp.Diff(want, got); diff != "" {
			h.Errorf("the computer inside (-want +got):\n%s", diff)
		}
		if outside, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); h.o.Host && (err != nil || string(outside) == files["/proc/sys/kernel/random/boot_id"]) {
			h.Errorf("the host's boot id %q is seen inside: %v", outside, err)
		}
	}
}

// Of the host's /proc and /sys nothing else can be reached, and nothing of what is
// there can be changed.
func (h *harness) testNothingElse() {
	h.needsOwnFiles()
	if !h.o.Host {
		h.Skip("this driver's machines do not show the host template and nothing else")
	}
	b := h.probed(sandbox.Limits{CPUs: 1})
	entries, err := os.ReadDir("/proc")
	if err != nil {
		h.Fatal(err)
	}
	args, outside := []string{"open"}, 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			args = append(args, "/proc/"+e.Name())
			outside++
		}
	}
	if outside < 20 { // the control
		h.Errorf("the host has only %d names in /proc", outside)
	}
	var opened map[string]string
	b.ask(&opened, args...)
	var found []string
	for name, errno := range opened {
		if errno != "ENOENT" {
			found = append(found, strings.TrimPrefix(name, "/proc/"))
		}
	}
	slices.Sort(found)
	if diff := cmp.Diff(shownOfProc, found); diff != "" {
		h.Errorf("names of the host's /proc that can be reached (-want +got):\n%s", diff)
	}
	var files []string
	b.ask(&files, "walk", "/proc/sys", "/sys")
	slices.Sort(files)
	v1, v2 := slices.Sorted(slices.Values(slices.Concat(shownOfSys, limitsV1))), slices.Sorted(slices.Values(slices.Concat(shownOfSys, limitsV2)))
	if diff := cmp.Diff(v2, files); diff != "" && !slices.Equal(v1, files) {
		h.Errorf("the files of /proc/sys and /sys (-want +got):\n%s", diff)
	}
	for _, name := range shownOfProc {
		if name != "self" && name != "thread-self" {
			files = append(files, "/proc/"+name)
		}
	}
	const control = "/tmp/control"
	if err := b.WriteFile(h.ctx, control, 0o644, 1, strings.NewReader("x")); err != nil {
		h.Fatal(err)
	}
	files = append(files, control)
	var written map[string]string
	b.ask(&written, append([]string{"write"}, files...)...)
	if len(written) != len(files) {
		h.Errorf("of %d files %d were tried", len(files), len(written))
	}
	for path, errno := range written {
		if (errno == "ok") != (path == control) {
			h.Errorf("an attempt to change %s: %s", path, errno)
		}
	}
}
