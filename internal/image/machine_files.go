package image

import (
	"fmt"
	"strconv"
)

// maxTopologies bounds for how many processors it is said where in the machine they
// are: that takes eight files and directories for each.
const maxTopologies = 16

// Files are the files of /proc and /sys that do not change and that no two sandboxes
// of the same limits have different. Those with the same content may be one file.
// Each costs a sandbox 10 µs and 5 KiB, so there is what honest programs are known to
// read and go wrong without.
func (m Machine) Files() []File {
	var files []File
	add := func(path, content string) {
		files = append(files, File{Path: path, Mode: 0o444, Content: []byte(content + "\n")})
	}
	files = append(files, File{Path: CPUInfo, Mode: 0o444, Content: []byte(m.cpuinfo())})
	add("/proc/filesystems", "nodev\tproc\nnodev\ttmpfs\nnodev\tdevpts\nnodev\toverlay")
	m.sysctls(add)
	m.processors(add)
	m.limits(add)
	return files
}

// CPUInfo says which processors there are.
const CPUInfo = "/proc/cpuinfo"

// BootID is where the sandbox's own is.
const BootID = "/proc/sys/kernel/random/boot_id"

// UUID is over which the kernel's own is to be laid: a new one at each reading.
const UUID = "/proc/sys/kernel/random/uuid"

// sysctls is /proc/sys.
func (m Machine) sysctls(add func(path, content string)) {
	for _, s := range shownSysctls {
		add("/proc/sys/"+s.name, m.Host.Sysctls[s.name])
	}
	add("/proc/sys/kernel/osrelease", m.Host.Release)
	add("/proc/sys/fs/file-max", "65536")       // a number of our own: limits.open_files is what holds
	add("/proc/sys/net/core/somaxconn", "4096") // what a new network namespace has
	add(UUID, "0")
}

// processors is /sys/devices/system/cpu. "possible" is the host's: a
// program that keeps something for each number that getcpu(2) may return must have
// room for it, whichever processors the sandbox is given.
func (m Machine) processors(add func(path, content string)) {
	const dir = "/sys/devices/system/cpu/"
	all := listOf(m.CPUs)
	add(dir+"online", all)
	add(dir+"present", all)
	add(dir+"possible", m.Host.Possible)
	for cpu := range min(m.CPUs, maxTopologies) {
		topology := fmt.Sprintf("%scpu%d/topology/", dir, cpu)
		number := strconv.Itoa(cpu)
		add(topology+"physical_package_id", "0")
		add(topology+"core_id", number)
		add(topology+"thread_siblings_list", number)
		add(topology+"thread_siblings", maskOf(cpu, 1))
		add(topology+"core_siblings_list", all)
		add(topology+"core_siblings", maskOf(0, m.CPUs))
	}
}

// limits is where runtimes look for the limits of their cgroup: where
// /proc/self/cgroup, which nobody can make up, leads them.
func (m Machine) limits(add func(path, content string)) {
	quota, period := strconv.FormatInt(m.QuotaUS, 10), strconv.FormatInt(m.PeriodUS, 10)
	memory := strconv.FormatInt(m.Memory, 10)
	const group = "/sys/fs/cgroup/"
	if m.CgroupVersion == 1 {
		add(group+"memory/memory.limit_in_bytes", memory)
		add(group+"cpu/cpu.cfs_quota_us", quota)
		add(group+"cpu/cpu.cfs_period_us", period)
		return
	}
	add(group+"cgroup.controllers", "cpu memory")
	add(group+"memory.max", memory)
	add(group+"cpu.max", quota+" "+period)
}
