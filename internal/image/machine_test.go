package image

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	cpuinfoX86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU\nmicrocode\t: 0x1000065\nphysical id\t: 1\nsiblings\t: 8\ncore id\t\t: 7\ncpu cores\t: 4\napicid\t\t: 14\nflags\t\t: fpu sse2\n\nprocessor\t: 1\nvendor_id\t: GenuineIntel\n\n"
	cpuinfoARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n\n"
)

func facts(cpuinfo string, usable int) HostFacts {
	return LookAtHost(fstest.MapFS{
		"proc/cpuinfo":                     {Data: []byte(cpuinfo)},
		"sys/devices/system/cpu/possible":  {Data: []byte("0-15\n")},
		"proc/sys/kernel/pid_max":          {Data: []byte("4194304\n")},
		"proc/sys/vm/overcommit_memory":    {Data: []byte("1\n")},
		"proc/sys/kernel/random/boot_id":   {Data: []byte("secret\n")},
		"proc/sys/kernel/random/something": {Data: []byte("else\n")},
	}, usable, "6.1.0")
}

func (m Machine) file(t *testing.T, path string) string {
	t.Helper()
	for _, f := range m.Files() {
		if f.Path == path {
			return string(f.Content)
		}
	}
	t.Fatalf("there is no %s", path)
	return ""
}

func TestProcessors(t *testing.T) {
	for _, test := range []struct {
		limit  float64
		usable int
		want   int
	}{{0.01, 8, 1}, {1, 8, 1}, {1.01, 8, 2}, {8, 8, 8}, {4096, 8, 8}, {1, 0, 1}} {
		h := facts(cpuinfoX86, test.usable)
		m := Machine{Host: h, CPUs: h.CPUs(test.limit), Memory: 1 << 30, CgroupVersion: 2}
		if got := strings.Count(m.file(t, "/proc/cpuinfo"), "processor\t"); got != test.want {
			t.Errorf("%v CPUs on a host of %d: %d processors, want %d", test.limit, test.usable, got, test.want)
		}
		want := "0\n"
		if test.want > 1 {
			want = fmt.Sprintf("0-%d\n", test.want-1)
		}
		if got := m.file(t, "/sys/devices/system/cpu/online"); got != want {
			t.Errorf("online: %q, want %q", got, want)
		}
		if got := m.file(t, "/sys/devices/system/cpu/possible"); got != "0-15\n" {
			t.Errorf("possible: %q: what getcpu returns may be beyond", got)
		}
	}
}

func TestCPUInfo(t *testing.T) {
	x86 := Machine{Host: facts(cpuinfoX86, 4), CPUs: 2}
	want := "processor\t: 1\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU\nphysical id\t: 0\nsiblings\t: 2\ncore id\t\t: 1\ncpu cores\t: 2\napicid\t\t: 1\nflags\t\t: fpu sse2\n\n"
	_, second, _ := strings.Cut(x86.cpuinfo(), "\n\n")
	if diff := cmp.Diff(want, second); diff != "" {
		t.Errorf("the second processor (-want +got):\n%s", diff)
	}
	arm := Machine{Host: facts(cpuinfoARM, 4), CPUs: 2}
	if got, want := arm.cpuinfo(), "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\n"; got != want {
		t.Errorf("on arm64: %q", got)
	}
	if got := (Machine{Host: facts("", 4), CPUs: 1}).cpuinfo(); got != "processor\t: 0\n\n" {
		t.Errorf("of a host that says nothing: %q", got)
	}
}

// Only what governs programs is the host's.
func TestSysctls(t *testing.T) {
	m := Machine{Host: facts(cpuinfoX86, 4), CPUs: 1, CgroupVersion: 1}
	for path, want := range map[string]string{
		"/proc/sys/kernel/pid_max": "4194304\n", "/proc/sys/vm/overcommit_memory": "1\n", "/proc/sys/vm/max_map_count": "65530\n",
		"/proc/sys/kernel/osrelease": "6.1.0\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "0\n",
	} {
		if got := m.file(t, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, f := range m.Files() {
		if strings.Contains(string(f.Content), "secret") || f.Path == BootID {
			t.Errorf("%s is shown", f.Path)
		}
	}
	odd := LookAtHost(fstest.MapFS{
		"proc/sys/kernel/pid_max": {Data: []byte("/bin/sh\n")}, "sys/devices/system/cpu/possible": {Data: []byte("0-1 or so\n")},
	}, 4, "")
	if odd.Sysctls["kernel/pid_max"] != "32768" || odd.Possible != "0-3" {
		t.Errorf("of a host that says what it should not: %+v", odd)
	}
}

func TestMask(t *testing.T) {
	for _, test := range []struct {
		first, n int
		want     string
	}{{0, 1, "1"}, {3, 1, "8"}, {0, 5, "1f"}, {0, 32, "ffffffff"}, {32, 1, "1,00000000"}, {0, 33, "1,ffffffff"}} {
		if got := maskOf(test.first, test.n); got != test.want {
			t.Errorf("%d from %d: %s, want %s", test.n, test.first, got, test.want)
		}
	}
}

// What changes keeps its size, and what the parts say fits together.
func TestLive(t *testing.T) {
	m := Machine{Host: facts(cpuinfoX86, 4), CPUs: 2, Memory: 256 << 20}
	before := m.Live(Reading{Booted: 1_700_000_000})
	after := m.Live(Reading{
		Uptime: 90_000 * time.Hour, Booted: 1_700_000_000, CPU: 40_000 * time.Hour, Memory: 100 << 20, Processes: 64, Load: Load{63.99, 12, 1},
	})
	for i := range before {
		if len(before[i].Content) != len(after[i].Content) {
			t.Errorf("%s: %d bytes and then %d:\n%s", before[i].Path, len(before[i].Content), len(after[i].Content), after[i].Content)
		}
	}
	text := map[string][]string{}
	for _, f := range after {
		text[f.Path] = strings.Fields(string(f.Content))
	}
	total, _ := strconv.ParseFloat(text[Uptime][0], 64)
	idle, _ := strconv.ParseFloat(text[Uptime][1], 64)
	if total != 90_000*3600+1 || idle != 2*90_000*3600-40_000*3600 {
		t.Errorf("uptime: %v", text[Uptime])
	}
	if got := text[Stat][:5]; !cmp.Equal(got, []string{"cpu", "14400000000", "0", "0", "50400000000"}) {
		t.Errorf("stat: %q", got)
	}
	if got := text[Loadavg]; !cmp.Equal(got, []string{"63.99", "12.00", "1.00", "1/64", "0"}) {
		t.Errorf("loadavg: %q", got)
	}
	if got := text[Meminfo][:9]; !cmp.Equal(got, []string{"MemTotal:", "262144", "kB", "MemFree:", "159744", "kB", "MemAvailable:", "159744", "kB"}) {
		t.Errorf("meminfo: %q", got)
	}
}

func TestLoad(t *testing.T) {
	l := Load{}.After(2, time.Minute)
	if math.Abs(l[0]-2*(1-1/math.E)) > 1e-9 || l[1] >= l[0] || l[2] >= l[1] {
		t.Errorf("two busy processors for a minute: %v", l)
	}
	if l = l.After(0, 24*time.Hour); l[0] > 1e-9 || l[2] > 1e-9 {
		t.Errorf("a day later: %v", l)
	}
}
