//go:build linux

package native

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/internal/linux/unixpair"
	"pinfold/sandbox"
)

// showEvery is how often the files that change are written at most, with readings of
// the counters; where nothing runs there are none, and nothing is written.
const showEvery = 200 * time.Millisecond

// inside is the computer that programs in a machine see.
type inside struct {
	*computer
	offset int64 // how far the clocks inside are behind, in seconds
	booted int64 // when they began, in seconds since 1970

	shown time.Time // when it was told last
	last  image.Reading
}

// lookAtHost finds out what is shown of the host.
func (h *host) lookAtHost() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return setupError("ask for the kernel's release", err)
	}
	h.facts = image.LookAtHost(os.DirFS("/"), runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]))
	return nil
}

// shapeOfComputer is what computers differ by.
type shapeOfComputer struct {
	cpus          int
	memory, quota int64
}

// computer is the part of them that is the same for all of a shape.
type computer struct {
	machine image.Machine
	layout  layout
}

// maxComputers bounds how many are kept. One takes a few KiB, and 0.1 ms to make.
const maxComputers = 64

// computers keeps what was made. It is safe for concurrent use.
type computers struct {
	mu   sync.Mutex
	made map[shapeOfComputer]*computer
}

// of returns the computer for those limits.
func (c *computers) of(h *host, l sandbox.Limits) *computer {
	shape := shapeOfComputer{h.facts.CPUs(l.CPUs), l.MemoryBytes, l.CPUQuota(cpuPeriodUS)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.made[shape]; known != nil {
		return known
	}
	m := image.Machine{
		Host: h.facts, CPUs: shape.cpus, Memory: shape.memory,
		QuotaUS: shape.quota, PeriodUS: cpuPeriodUS, CgroupVersion: h.hierarchy.Version(),
	}
	if len(c.made) >= maxComputers || c.made == nil {
		c.made = map[shapeOfComputer]*computer{}
	}
	made := &computer{machine: m, layout: layOut(m.Files())}
	c.made[shape] = made
	return made
}

// newInside makes a computer as large as the limits.
func (h *host) newInside(l sandbox.Limits, timeNS bool) *inside {
	in := &inside{computer: h.computers.of(h, l)}
	boot := bootClock()
	if timeNS {
		in.offset = int64(boot / time.Second)
	}
	in.booted = time.Now().Add(-boot).Unix() + in.offset
	return in
}

// bootClock is the host's clock that counts from its boot.
func bootClock() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

func randomUUID() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic("native: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// live returns the files that change, as they are with those counters.
func (in *inside) live(cpuNanos, memory, processes int64) []image.File {
	now := image.Reading{Uptime: in.uptime(), Booted: in.booted, CPU: time.Duration(cpuNanos), Memory: memory, Processes: processes}
	if passed := now.Uptime - in.last.Uptime; in.last.Uptime > 0 && passed > 0 {
		now.Load = in.last.Load.After(float64(now.CPU-in.last.CPU)/float64(passed), passed)
	}
	in.last = now
	return in.machine.Live(now)
}

// Renew is for a machine that is a copy of another, as in a virtual machine that goes on
// from a snapshot: it gets an id of its own, and its times are as the clock now says.
func (m *machine) Renew() {
	t := &m.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	m.inside.booted = time.Now().Add(-bootClock()).Unix() + m.inside.offset
	m.inside.shown = time.Time{}
	t.write([]image.File{bootID()})
	t.show()
}

func bootID() image.File {
	return image.File{Path: image.BootID, Mode: 0o444, Content: []byte(randomUUID() + "\n")}
}

// uptime is the time since the start, as clocks inside say it.
func (in *inside) uptime() time.Duration {
	return bootClock() - time.Duration(in.offset)*time.Second
}

// time returns the file that says it.
func (in *inside) time(cpuNanos int64) image.File {
	return in.machine.Time(image.Reading{Uptime: in.uptime(), CPU: time.Duration(cpuNanos)})
}

// files returns the sandbox's own files as they are at the beginning. Those that
// change are written by the host, who is not their owner where it is an ordinary
// user; inside, nobody can write to what is mounted read-only.
func (in *inside) files(root bool) []image.File {
	in.shown = time.Now()
	files := in.live(0, 0, 0)
	for i := range files {
		if !root {
			files[i].Mode = 0o666
		}
	}
	return append(files, bootID())
}

// show writes the files that change, where that is due.
func (t *meter) show() {
	if in := t.machine.inside; in != nil && time.Since(in.shown) >= showEvery {
		in.shown = time.Now()
		t.write(in.live(t.last.CPUNanos, t.last.MemoryBytes, t.last.Processes))
	}
}

// showTime writes how late it is, for a program that is about to start: the machine
// may have waited long for it. Else nothing has happened in it, and the program
// waits for this.
func (t *meter) showTime() {
	if in := t.machine.inside; in != nil && time.Since(in.shown) >= showEvery {
		in.shown = time.Now()
		t.write([]image.File{in.time(t.last.CPUNanos)})
	}
}

// told is the connection to the agent. Whatever is asked of it, a program that it
// starts finds how late it is, and the machine's clock starts.
type told struct {
	*unixpair.Channel
	meter *meter
}

// Write tells the time before it sends.
func (c told) Write(b []byte) (int, error) {
	c.tell(len(b))
	return c.Channel.Write(b)
}

// TryWrite does too.
func (c told) TryWrite(b []byte) int {
	c.tell(len(b))
	return c.Channel.TryWrite(b)
}

func (c told) tell(bytes int) {
	if c.meter.mu.TryLock() { // who has it is reading the counters, and tells it
		c.meter.showTime()
		c.meter.sentToAgent(bytes)
		c.meter.mu.Unlock()
	}
}

// write writes files. What cannot be written stays as it was: nothing depends on it
// but what a program reads there. The lock is held.
func (t *meter) write(files []image.File) {
	for _, f := range files {
		_ = t.writeFile(f)
	}
}

// replace writes files, or says which could not be written.
func (t *meter) replace(files []image.File) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range files {
		if err := t.writeFile(f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

// writeFile has a file that is there hold its content and nothing else. The open must wait
// for nobody: where the files are the guest's by their owner, it may hold a lease on them
// (fcntl(2), F_SETLEASE), for whose end an open for writing waits 45 s.
func (t *meter) writeFile(f image.File) error {
	fd, err := unix.Openat2(t.root, rel(f.Path), &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // written to memory
	n, err := unix.Pwrite(fd, f.Content, 0)
	if err == nil && n < len(f.Content) {
		err = io.ErrShortWrite
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Size > int64(n) {
		err = unix.Ftruncate(fd, int64(n))
	}
	return err
}
