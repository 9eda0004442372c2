package image

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// Machine is the computer that programs in a sandbox find in /proc and /sys: one
// as large as the sandbox's limits. Nothing of it is the host's but what a program
// can ask the processor and the kernel by itself.
type Machine struct {
	Host   HostFacts
	CPUs   int   // see HostFacts.CPUs
	Memory int64 // bytes

	QuotaUS, PeriodUS int64 // CPU time in each period, in microseconds
	CgroupVersion     int   // where programs look for their limits: as /proc/self/cgroup says
}

// HostFacts is what a Machine shows of the host as it is.
type HostFacts struct {
	CPUInfo  string            // what /proc/cpuinfo says of the first processor
	Possible string            // the numbers that the kernel gives processors, "0-7": what getcpu(2) may return
	Usable   int               // processors that this process may use
	Release  string            // uname(2)
	Sysctls  map[string]string // of shownSysctls
}

// CPUs is how many processors a sandbox with that limit has.
func (h HostFacts) CPUs(limit float64) int {
	return max(1, min(int(math.Ceil(limit)), h.Usable))
}

// shownSysctls are settings of the host that govern what programs may do, so that
// any other value would be untrue. By default they are what the kernel begins with.
var shownSysctls = []struct{ name, byDefault string }{
	{"kernel/pid_max", "32768"},
	{"kernel/ngroups_max", "65536"},
	{"vm/overcommit_memory", "0"},
	{"vm/max_map_count", "65530"},
}

// maxCPUInfo bounds what is read of the host's /proc/cpuinfo: the first processor's
// flags are about 2 KiB.
const maxCPUInfo = 8 << 10

// LookAtHost reads the facts. root is the host's file tree, usable how many
// processors this process may use, and release the kernel's.
func LookAtHost(root fs.FS, usable int, release string) HostFacts {
	h := HostFacts{Usable: max(1, usable), Release: release, Sysctls: map[string]string{}}
	h.CPUInfo, _, _ = strings.Cut(readStart(root, "proc/cpuinfo", maxCPUInfo), "\n\n")
	h.Possible = strings.TrimSpace(readStart(root, "sys/devices/system/cpu/possible", 64))
	if h.Possible == "" || strings.Trim(h.Possible, "0123456789-,") != "" {
		h.Possible = listOf(h.Usable)
	}
	for _, s := range shownSysctls {
		h.Sysctls[s.name] = s.byDefault
		v := strings.TrimSpace(readStart(root, "proc/sys/"+s.name, 32))
		if _, err := strconv.ParseUint(v, 10, 64); err == nil {
			h.Sysctls[s.name] = v
		}
	}
	return h
}

// readStart returns the beginning of a file, nothing where it cannot be read.
func readStart(root fs.FS, name string, most int) string {
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	b := make([]byte, most)
	n, _ := io.ReadFull(f, b)
	return string(b[:n])
}

// listOf is how the kernel writes the numbers of the first n processors.
func listOf(n int) string {
	if n == 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", n-1)
}

// maskOf is the same as a mask, in groups of 32 bits.
func maskOf(first, n int) string {
	var groups []string
	for low := (first + n - 1) / 32 * 32; low >= 0; low -= 32 {
		var bits uint32
		for cpu := max(first, low); cpu < min(first+n, low+32); cpu++ {
			bits |= 1 << (cpu - low)
		}
		groups = append(groups, fmt.Sprintf("%08x", bits))
	}
	groups[0] = strings.TrimLeft(groups[0][:7], "0") + groups[0][7:]
	return strings.Join(groups, ",")
}

// cpuNumbers are the lines of /proc/cpuinfo that say where in the machine a
// processor is. What is not a number of the sandbox's own stays away.
func (m Machine) cpuNumbers(cpu int) map[string]string {
	n, one := strconv.Itoa(cpu), strconv.Itoa(m.CPUs)
	return map[string]string{
		"processor": n, "physical id": "0", "siblings": one, "core id": n, "cpu cores": one,
		"apicid": n, "initial apicid": n, "microcode": "",
	}
}

// cpuinfo is /proc/cpuinfo.
func (m Machine) cpuinfo() string {
	block := m.Host.CPUInfo
	if !strings.HasPrefix(block, "processor") {
		block = "processor\t: 0\n" + block
	}
	var b strings.Builder
	for cpu := range m.CPUs {
		numbers := m.cpuNumbers(cpu)
		for line := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
			key, _, ok := strings.Cut(line, ":")
			value, own := numbers[strings.TrimSpace(key)]
			switch {
			case ok && own && value == "":
			case ok && own:
				fmt.Fprintf(&b, "%s: %s\n", key, value)
			default:
				b.WriteString(line + "\n")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
