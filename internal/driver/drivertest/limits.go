//go:build linux

package drivertest

import (
	"fmt"
	"strconv"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

var limitTests = []test{
	{"memory", (*harness).testMemory},
	{"files are not memory", (*harness).testFilesAreNotMemory},
	{"processes", (*harness).testProcesses},
	{"disk", (*harness).testDisk},
	{"inodes", (*harness).testInodes},
	{"cpu time", (*harness).testCPUTime},
}

const mib = 1 << 20

// enforced says whether plans have a feature. A feature that they do not have
// must come with a reason; the suite's report tests see to that.
func (h *harness) enforced(feature string) bool { return h.plan(sandbox.Limits{}).Enforces(feature) }

// page is the unit in which file systems count.
const page = 4096

// used is what the probe could use up.
type used struct {
	N     int64
	Errno string
}

// With the kernel's limit, the OOM killer acts and is seen. Without it, the
// counter must show the excess, so that the engine can act.
func (h *harness) testMemory() {
	b := h.probed(sandbox.Limits{MemoryBytes: 64 * mib})
	if !h.enforced(sandbox.FeatureMemory) {
		var took used
		b.hold(&took, "alloc", strconv.Itoa(128*mib))
		b.until("more memory than the limit", func(u driver.Usage) bool { return u.MemoryBytes > 64*mib })
		return
	}
	x := b.start("alloc", strconv.Itoa(512*mib))
	u := b.until("an OOM kill", func(u driver.Usage) bool { return u.OOMKills > 0 })
	// The kernel lets a process that it is ending take some more.
	if u.MemoryBytes > 72*mib {
		h.Errorf("%d bytes of memory in use, beyond the limit", u.MemoryBytes)
	}
	select {
	case <-x.Done():
	case <-time.After(time.Minute):
		h.Error("the OOM killer acted, and the program lives")
	}
	select { // the kernel may have ended only the program
	case <-b.Dead():
		if d := b.Death(); d.Kind != driver.DeathMemory {
			h.Errorf("the death is %+v", d)
		}
	default:
	}
}

// A program may fill its disk and use its memory, both to the limit, at once, and
// whether anybody reads the counters or not. Where the machine is so busy that the memory
// limit did not follow the disk in time, the readings must say so, and it is tried again.
func (h *harness) testFilesAreNotMemory() {
	for range 10 {
		b := h.probed(sandbox.Limits{MemoryBytes: 64 * mib, DiskBytes: 96 * mib})
		fault := h.fillBoth(b)
		if fault == "" {
			return
		}
		if u := b.usage(); !u.MemoryLate || u.OOMKills == 0 {
			h.Fatalf("disk and memory within their limits: %s; %+v", fault, u)
		}
		h.destroy(b.Machine)
	}
	h.Fatal("the memory limit never followed the disk in time")
}

// fillBoth says what was wrong when a program filled its disk and used its memory.
func (h *harness) fillBoth(b *box) (fault string) {
	fill, end := []string{"fill", b.plan.User.Home + "/full"}, "ENOSPC"
	if !h.enforced(sandbox.FeatureDisk) {
		fill, end = append(fill, strconv.Itoa(80*mib)), ""
	}
	var wrote used
	if err := lastLine(b.start(fill...), &wrote); err != nil || wrote.Errno != end {
		return fmt.Sprintf("the disk ended with %+v, %v", wrote, err)
	}
	x := b.start("alloc", strconv.Itoa(40*mib))
	select {
	case <-x.lines:
	case <-x.Done():
		return "the program that holds memory ended"
	}
	if u := b.usage(); u.OOMKills != 0 || u.DiskFull != (end != "") || u.MemoryBytes > 64*mib {
		return "the counters"
	}
	return ""
}

// The probe's own threads count too, so the refusal comes a little earlier.
func (h *harness) testProcesses() {
	const spareProcesses = 2 // where the limit is the sandbox's own kernel's: its report says "to within six"
	const limit, most = 24, 12
	b := h.probed(sandbox.Limits{Processes: limit})
	if !h.enforced(sandbox.FeatureProcesses) && h.suite.o.Watched {
		x := b.start("fork", strconv.Itoa(limit))
		<-x.Exited()
		b.until("more processes than the limit", func(u driver.Usage) bool { return u.ProcessesFull && u.Processes > limit-1 })
		h.seesTasks(b, limit)
		return
	}
	x := b.start("fork", "200")
	var made used
	b.watched(func() { <-x.Exited() })
	if err := lastLine(x, &made); err != nil {
		h.Fatal(err)
	}
	u := b.until("the refused fork, and those before it", func(u driver.Usage) bool {
		return (u.ProcessesDenied > 0 || u.ProcessesFull) && u.ProcessesPeak >= made.N
	})
	h.seesTasks(b, made.N)
	over := int64(0)
	if u.ProcessesFull { // watched, not counted by the kernel: it refuses a little later
		over = wire.MaxTasks + spareProcesses
	}
	if made.Errno != "EAGAIN" || made.N > limit-1+over || made.N < limit-most {
		h.Errorf("with %d processes, %d forks succeeded, then %s", limit, made.N, made.Errno)
	}
	if u.Processes > limit+max(over, wire.MaxTasks) {
		h.Errorf("counted %d processes; %d were made", u.Processes, made.N)
	}
	if err := b.KillAll(h.ctx); err != nil {
		h.Fatalf("KillAll with all processes in use: %v", err)
	}
	if got := b.run("/bin/echo", "again").out; got != "again\n" {
		h.Errorf("after KillAll echo says %q", got)
	}
}

// seesTasks wants every task of so many processes, with the time that it took to become one,
// where the driver promises that.
func (h *harness) seesTasks(b *box, processes int64) {
	meter := b.Machine.Abilities().TaskMeter
	if meter == nil {
		return
	}
	var seen int64
	tasks := b.until("the time that each task took", func(driver.Usage) bool { // some may not have run yet
		seen = 0
		meter.EachTask(func(_ int, cpu, _ int64) {
			if cpu > 0 {
				seen++
			}
		})
		return seen >= processes
	}).Processes
	if seen > tasks {
		h.Errorf("the host sees %d tasks that have run, of %d", seen, tasks)
	}
}

// The limit is exactly what is left for the guest.
func (h *harness) testDisk() {
	const limit = 32 * mib
	b := h.probed(sandbox.Limits{DiskBytes: limit})
	base := b.usage().DiskBytes
	var wrote used
	if !h.enforced(sandbox.FeatureDisk) {
		h.watchedDisk(b, limit)
		return
	}
	b.watched(func() { b.ask(&wrote, "fill", "/tmp/full") })
	if left := limit - base - wrote.N; wrote.Errno != "ENOSPC" || left < -page || left > page {
		h.Errorf("%d bytes were in use, %d more could be written, then %s; the limit is %d", base, wrote.N, wrote.Errno, limit)
	}
	u := b.usage()
	if !u.DiskFull || u.InodesFull || u.DiskPeak < limit-page || u.DiskPeak > limit+page {
		h.Errorf("a full disk reads %+v", u)
	}
	for _, dir := range []string{"/home/user", "/tmp", "/var/tmp", "/dev/shm"} {
		var more used
		b.ask(&more, "fill", dir+"/more")
		if more.N != 0 || more.Errno != "ENOSPC" {
			h.Errorf("%s takes %d bytes more, then %s", dir, more.N, more.Errno)
		}
	}
	if err := b.Remove(h.ctx, "/tmp/full"); err != nil {
		h.Fatal(err)
	}
	if u := b.usage(); u.DiskBytes != base || !u.DiskFull {
		h.Errorf("%d bytes in use after the file was removed, %d before it was made; full was %v", u.DiskBytes, base, u.DiskFull)
	}
}

// watchedDisk wants the counters to show what is beyond the limit.
func (h *harness) watchedDisk(b *box, limit int64) {
	h.Helper()
	base, file := b.usage().DiskBytes, b.plan.User.Tmp+"/full"
	var wrote used
	b.ask(&wrote, "fill", file, strconv.FormatInt(limit, 10))
	b.until("more on the disk than the limit", func(u driver.Usage) bool { return u.DiskFull && u.DiskBytes > limit })
	if err := b.Remove(h.ctx, file); err != nil {
		h.Fatal(err)
	}
	b.until("the disk as it was", func(u driver.Usage) bool { return u.DiskFull && u.DiskBytes <= base && u.DiskPeak > limit })
}

func (h *harness) testInodes() {
	const limit = 500
	b := h.probed(sandbox.Limits{Inodes: limit})
	base := b.usage().Inodes
	var made used
	if !h.enforced(sandbox.FeatureInodes) {
		b.ask(&made, "inodes", b.plan.User.Tmp, strconv.Itoa(limit))
		b.until("more inodes than the limit", func(u driver.Usage) bool { return u.InodesFull && u.InodesPeak > limit })
		return
	}
	b.ask(&made, "inodes", "/tmp")
	if made.Errno != "ENOSPC" || made.N != limit-base {
		h.Errorf("%d inodes were in use, %d more could be made, then %s; the limit is %d", base, made.N, made.Errno, limit)
	}
	if u := b.usage(); !u.InodesFull || u.InodesPeak != limit || u.DiskFull {
		h.Errorf("a disk without inodes reads %+v", u)
	}
}

func (h *harness) testCPUTime() {
	b := h.probed(sandbox.Limits{})
	// What it takes to start the probe and to hear its answer: much, where the
	// machine is slow or emulated.
	var spun used
	start := b.usage().CPUNanos
	b.watched(func() { b.ask(&spun, "spin", "0") })
	before := b.usage().CPUNanos
	around := before - start
	b.watched(func() { b.ask(&spun, "spin", "300") })
	// Where no counter exists the time of a process that has ended shows only
	// in its parent's, in hundredths of a second.
	u := b.until("CPU time", func(u driver.Usage) bool { return u.CPUNanos-before >= spun.N-30e6 })
	if got := u.CPUNanos - before; got > spun.N+250e6+2*around {
		h.Errorf("%d ms of CPU counted, %d ms were used", got/1e6, spun.N/1e6)
	}
}
