package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
)

// Counters are what is read every few milliseconds. A value of -1 means that
// it cannot be read here: the controller is not ours, or the kernel lacks the file.
type Counters struct {
	CPUNanos     int64 // CPU time of all that ever ran in the group
	MemoryBytes  int64 // charged now, everything included
	OOMKills     int64 // processes that the OOM killer ended
	Tasks        int64 // now, threads included
	ForksRefused int64 // because of the limit on tasks (version 1: since Linux 6.11 or so)
}

// Stats is everything that the group can tell, for the end of a run. Again -1
// means that a value cannot be read.
type Stats struct {
	Counters
	Peaks

	Anon   int64 // bytes now, part of MemoryBytes
	Shmem  int64 // files on tmpfs and shared memory
	File   int64 // page cache without Shmem
	Kernel int64
}

// counter names one number in one control file.
type counter int

const (
	cpuTime counter = iota
	memoryNow
	oomKills
	tasksNow
	forksRefused
	numCounters // the ones before are read often and their files stay open

	memoryPeak counter = iota - 1 // its file stays open, too
	tasksPeak
	kernelMemory
	numSources

	numOpen = memoryPeak + 1
)

// source is where a counter comes from. A zero source has no file.
type source struct {
	controller Controller
	file       string
	key        string // of the line, "" for a file with one number
	scale      int64
}

var sources = map[int]*[numSources]source{
	1: {
		cpuTime:      {CPUAcct, "cpuacct.usage", "", 1},
		memoryNow:    {Memory, "memory.usage_in_bytes", "", 1},
		oomKills:     {Memory, "memory.oom_control", "oom_kill", 1},
		tasksNow:     {Pids, "pids.current", "", 1},
		forksRefused: {Pids, "pids.events", "max", 1},
		memoryPeak:   {Memory, "memory.max_usage_in_bytes", "", 1},
		tasksPeak:    {Pids, "pids.peak", "", 1},
		kernelMemory: {Memory, "memory.kmem.usage_in_bytes", "", 1},
	},
	2: {
		cpuTime:      {CPUAcct, "cpu.stat", "usage_usec", 1000},
		memoryNow:    {Memory, "memory.current", "", 1},
		oomKills:     {Memory, "memory.events", "oom_kill", 1},
		tasksNow:     {Pids, "pids.current", "", 1},
		forksRefused: {Pids, "pids.events", "max", 1},
		memoryPeak:   {Memory, "memory.peak", "", 1},
		tasksPeak:    {Pids, "pids.peak", "", 1},
		kernelMemory: {Memory, "memory.stat", "kernel", 1},
	},
}

// Counters reads the fast counters. It allocates nothing and takes a few
// microseconds; the first call also opens the files.
func (g *Group) Counters() (Counters, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counters()
}

func (g *Group) counters() (Counters, error) {
	if g.removed {
		return Counters{}, fmt.Errorf("cgroup %s: %w", g.name, os.ErrClosed)
	}
	var v [numCounters]int64
	for i := range v {
		n, err := g.fast(counter(i))
		if err != nil {
			return Counters{}, err
		}
		v[i] = n
	}
	return Counters{v[cpuTime], v[memoryNow], v[oomKills], v[tasksNow], v[forksRefused]}, nil
}

// OpenCounters opens the files of the fast counters, so that the first reading
// takes no longer than others. One that cannot be opened is tried again then.
func (g *Group) OpenCounters() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range numOpen {
		_ = g.prepare(c) // the reading reports it
	}
}

// CloseCounters closes the files of the fast counters, which cost descriptors
// while nobody reads them; the next reading opens them again. What holds since
// BeginPeak stays open: on version 2 the kernel keeps it for the open file.
func (g *Group) CloseCounters() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c, fd := range g.files {
		if fd >= 0 && (counter(c) != memoryPeak || !g.began) {
			_ = unix.Close(fd)
			g.files[c] = -1
		}
	}
}

// CPU reads one counter, the CPU time in nanoseconds.
func (g *Group) CPU() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fast(cpuTime)
}

// absent stands in files for a counter that this group does not have.
const absent = -2

// fast reads a counter whose file stays open.
func (g *Group) fast(c counter) (int64, error) {
	if err := g.prepare(c); err != nil {
		return 0, err
	}
	s := &sources[g.version][c]
	if g.files[c] == absent {
		return -1, nil
	}
	var buf [512]byte
	n, err := pread(g.files[c], buf[:])
	if err != nil {
		return 0, fmt.Errorf("cannot read %s of cgroup %s: %w", s.file, g.name, err)
	}
	return s.parse(buf[:n]), nil
}

// prepare opens the file of a fast counter, unless it is.
func (g *Group) prepare(c counter) error {
	if g.files[c] != -1 {
		return nil
	}
	flags := unix.O_RDONLY
	if c == memoryPeak {
		flags = unix.O_RDWR
	}
	fd, err := g.open(&sources[g.version][c], flags)
	if errors.Is(err, fs.ErrPermission) {
		fd, err = g.open(&sources[g.version][c], unix.O_RDONLY)
	}
	if err == nil {
		g.files[c] = highfd.Move(fd)
	}
	return err
}

func (g *Group) open(s *source, flags int) (int, error) {
	dir, ok := g.where[s.controller]
	if !ok {
		return absent, nil
	}
	fd, err := openFile(path.Join(dir, s.file), flags)
	if errors.Is(err, fs.ErrNotExist) && exists(dir) {
		return absent, nil
	}
	return fd, err
}

func (s *source) parse(b []byte) int64 {
	n, ok := keyed(b, s.key)
	switch {
	case !ok:
		return -1
	case n > 1<<62/s.scale:
		return 1 << 62
	}
	return n * s.scale
}

// Peaks are the high-water marks and sums that matter once the group is empty.
type Peaks struct {
	MemoryPeak   int64 // bytes, may pass the limit by a few pages; version 2: since Linux 5.19
	TasksPeak    int64 // since Linux 6.1
	ReadBytes    int64 // from block devices
	WrittenBytes int64
}

// Peaks reads the peaks: a few files fewer than Stats.
func (g *Group) Peaks() (p Peaks, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peaks()
}

func (g *Group) peaks() (p Peaks, err error) {
	if p.MemoryPeak, err = g.slow(memoryPeak); err != nil {
		return p, err
	}
	if p.TasksPeak, err = g.slow(tasksPeak); err != nil {
		return p, err
	}
	p.ReadBytes, p.WrittenBytes = -1, -1
	return p, g.countIO(&p)
}

// BeginPeak has PeakSince speak of what comes from now on. The kernel forgets the
// mark that it has, version 2 for those who read this open file; before
// Linux 6.12 that cannot, and is asked for the mark.
func (g *Group) BeginPeak() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.prepare(memoryPeak); err != nil || g.files[memoryPeak] == absent {
		return err
	}
	g.began = true
	_, err := unix.Pwrite(g.files[memoryPeak], []byte("0"), 0)
	if err == nil {
		g.before = 0
	} else if g.version == 2 {
		g.before, err = g.fast(memoryPeak)
	}
	return err
}

// PeakSince is the most memory since BeginPeak, in bytes, everything included; -1
// where nobody knows: on version 2, when there was more before.
func (g *Group) PeakSince() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, err := g.fast(memoryPeak)
	if err != nil || n <= g.before {
		return -1, err
	}
	return n, nil
}

// Stats reads everything.
func (g *Group) Stats() (all Stats, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all.Counters, err = g.counters(); err != nil {
		return Stats{}, err
	}
	if all.Peaks, err = g.peaks(); err != nil {
		return Stats{}, err
	}
	if all.Kernel, err = g.slow(kernelMemory); err != nil {
		return Stats{}, err
	}
	return all, g.splitMemory(&all)
}

// slow reads a counter whose file is opened for it.
func (g *Group) slow(c counter) (int64, error) {
	s := &sources[g.version][c]
	text, err := g.read(s.controller, s.file)
	return s.parse(text), err
}

// read returns the content of a control file, nil when there is none.
func (g *Group) read(c Controller, file string) ([]byte, error) {
	dir, ok := g.where[c]
	if !ok {
		return nil, nil
	}
	text, err := readFile(path.Join(dir, file), maxControlFile)
	if errors.Is(err, fs.ErrNotExist) && exists(dir) {
		return nil, nil
	}
	return text, err
}

// splitMemory says what kinds of memory are in use. In both versions the page
// cache in memory.stat includes shared memory.
func (g *Group) splitMemory(to *Stats) error {
	anon, shmem, cache := "anon", "shmem", "file"
	if g.version == 1 {
		anon, shmem, cache = "total_rss", "total_shmem", "total_cache"
	}
	text, err := g.read(Memory, "memory.stat")
	if err != nil {
		return err
	}
	value := func(key string) int64 {
		return (&source{key: key, scale: 1}).parse(text)
	}
	if text == nil {
		value = func(string) int64 { return -1 }
	}
	to.Anon, to.Shmem, to.File = value(anon), value(shmem), value(cache)
	if to.File >= 0 && to.Shmem >= 0 {
		to.File = max(0, to.File-to.Shmem)
	}
	return nil
}

func (g *Group) countIO(to *Peaks) error {
	file, read, write := "io.stat", " rbytes=", " wbytes="
	if g.version == 1 {
		file, read, write = "blkio.throttle.io_service_bytes", " Read ", " Write "
	}
	text, err := g.read(IO, file)
	if err != nil || g.where[IO] == "" {
		return err
	}
	to.ReadBytes, to.WrittenBytes = ioBytes(text, read, write)
	return nil
}

func pread(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
