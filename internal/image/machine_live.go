package image

import (
	"math"
	"strconv"
	"time"
)

// Reading is what a sandbox's counters say at a moment.
type Reading struct {
	Uptime    time.Duration // as clocks inside count it
	Booted    int64         // when that was zero: seconds since 1970
	CPU       time.Duration // used by all programs since
	Memory    int64         // bytes in use, without files
	Processes int64
	Load      Load
}

// Load is how many processors were busy, on average over 1, 5 and 15 minutes, each
// with the weight that the kernel gives it.
type Load [3]float64

// After returns the load when so many processors were busy for so long.
func (l Load) After(busy float64, d time.Duration) Load {
	for i, minutes := range [...]float64{1, 5, 15} {
		keeps := math.Exp(-d.Minutes() / minutes)
		l[i] = l[i]*keeps + busy*(1-keeps)
	}
	return l
}

// The files that change with every reading. Each has the same size at every
// reading, and its numbers the same places as far as they have room, so that one who
// reads a file while it is written finds a number of before or of after.
const (
	Stat    = "/proc/stat"
	Meminfo = "/proc/meminfo"
	Loadavg = "/proc/loadavg"
	Uptime  = "/proc/uptime"
)

// Live returns the files.
func (m Machine) Live(r Reading) []File {
	return []File{live(Stat, m.stat(r)), live(Meminfo, m.meminfo(r)), live(Loadavg, loadavg(r)), m.Time(r)}
}

// Time returns the one of them that says how late it is.
func (m Machine) Time(r Reading) File { return live(Uptime, m.uptime(r)) }

func live(path, content string) File { return File{Path: path, Mode: 0o444, Content: []byte(content)} }

// ticks is a time in the unit of /proc/stat, a hundredth of a second.
func ticks(d time.Duration) int64 { return max(0, d.Milliseconds()/10) }

// idle is for how long the processors had nothing to do, together.
func (m Machine) idle(r Reading) time.Duration {
	return max(0, r.Uptime*time.Duration(m.CPUs)-r.CPU)
}

// stat is /proc/stat. The kernel does not say on which processor what was used, nor
// at no cost what was the system's, so each has its share and all is user time.
func (m Machine) stat(r Reading) string {
	b := make([]byte, 0, 512)
	line := func(share time.Duration) {
		b = padded(append(b, ' '), ticks(r.CPU/share), 12)
		b = append(b, " 0 0"...)
		b = padded(append(b, ' '), ticks(m.idle(r)/share), 12)
		b = append(b, " 0 0 0 0 0 0\n"...)
	}
	b = append(b, "cpu "...)
	line(1)
	for cpu := range m.CPUs {
		b = strconv.AppendInt(append(b, "cpu"...), int64(cpu), 10)
		line(time.Duration(m.CPUs))
	}
	b = strconv.AppendInt(append(b, "intr 0\nctxt 0\nbtime "...), r.Booted, 10)
	b = padded(append(b, "\nprocesses "...), r.Processes, 7)
	return string(append(b, "\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"...))
}

// padded appends a number with blanks before it.
func padded(b []byte, n int64, width int) []byte {
	digits := strconv.AppendInt(make([]byte, 0, 20), n, 10)
	for range width - len(digits) {
		b = append(b, ' ')
	}
	return append(b, digits...)
}

// loadavg is /proc/loadavg. The number of the last process is not known.
func loadavg(r Reading) string {
	b := make([]byte, 0, 64)
	for _, l := range r.Load {
		b = append(strconv.AppendFloat(b, l, 'f', 2, 64), ' ')
	}
	b = strconv.AppendInt(append(b, "1/"...), max(1, r.Processes), 10)
	return fixed(32, append(b, " 0"...))
}

// ahead is how far /proc/uptime is ahead of the moment at which it is written, which
// is a moment ago when it is read: for one who finds there less than a process's
// start, as ps, the process has run for millions of years.
const ahead = time.Second

func (m Machine) uptime(r Reading) string {
	b := append(strconv.AppendFloat(make([]byte, 0, 64), (r.Uptime+ahead).Seconds(), 'f', 2, 64), ' ')
	return fixed(32, strconv.AppendFloat(b, m.idle(r).Seconds(), 'f', 2, 64))
}

// fixed makes one line of the size, with blanks at its end.
func fixed(size int, line []byte) string {
	for len(line) < size-1 {
		line = append(line, ' ')
	}
	return string(append(line, '\n'))
}

// meminfo is /proc/meminfo. Files are the disk's, not the memory's.
func (m Machine) meminfo(r Reading) string {
	total := m.Memory >> 10
	used := min(total, max(0, r.Memory>>10))
	width := max(8, len(strconv.FormatInt(total, 10)))
	b := make([]byte, 0, 1280)
	for _, l := range meminfoLines {
		b = padded(append(b, l.name...), [...]int64{nothing: 0, all: total, inUse: used, unused: total - used, largest: 34359738367}[l.what], width)
		b = append(b, " kB\n"...)
	}
	return string(append(b, hugePages...))
}

// What the lines of /proc/meminfo say.
const (
	nothing = iota
	all
	inUse
	unused
	largest // that can be addressed
)

var meminfoLines = [...]struct {
	name string
	what int
}{
	{"MemTotal:       ", all},
	{"MemFree:        ", unused},
	{"MemAvailable:   ", unused},
	{"Buffers:        ", nothing},
	{"Cached:         ", nothing},
	{"SwapCached:     ", nothing},
	{"Active:         ", inUse},
	{"Inactive:       ", nothing},
	{"Active(anon):   ", inUse},
	{"Inactive(anon): ", nothing},
	{"Active(file):   ", nothing},
	{"Inactive(file): ", nothing},
	{"Unevictable:    ", nothing},
	{"Mlocked:        ", nothing},
	{"SwapTotal:      ", nothing},
	{"SwapFree:       ", nothing},
	{"Dirty:          ", nothing},
	{"Writeback:      ", nothing},
	{"AnonPages:      ", inUse},
	{"Mapped:         ", nothing},
	{"Shmem:          ", nothing},
	{"KReclaimable:   ", nothing},
	{"Slab:           ", nothing},
	{"SReclaimable:   ", nothing},
	{"SUnreclaim:     ", nothing},
	{"KernelStack:    ", nothing},
	{"PageTables:     ", nothing},
	{"CommitLimit:    ", all},
	{"Committed_AS:   ", inUse},
	{"VmallocTotal:   ", largest},
	{"VmallocUsed:    ", nothing},
	{"VmallocChunk:   ", nothing},
}

const hugePages = `HugePages_Total:       0
HugePages_Free:        0
HugePages_Rsvd:        0
HugePages_Surp:        0
Hugepagesize:       2048 kB
Hugetlb:               0 kB
`
