//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// growCode takes 8 MiB at a time, in the way that is inserted, up to 200 MiB.
func growCode(take string) string {
	return "n = 0\nkeep = []\ntry:\n    while n < 200 << 20:\n        " + take + "\n        n += 8 << 20\nexcept (OSError, MemoryError) as e: say('error', name(getattr(e, 'errno', 12) or 12))\nsay('grown', n)\n"
}

// hog is a payload that tries to take 200 MiB of what the limits call memory or
// disk, of which it may have 64. The host counts its shared memory.
func hog(id, title, take string, judge func(*trial) error, needs ...string) Case {
	l := sandbox.Limits{MemoryBytes: 64 << 20, DiskBytes: 32 << 20, WallTimeMS: 15_000}
	return Case{
		ID: id, Title: title, Level: User, Severity: HostDoS, Source: "isolate's /dev/shm",
		Expect: "ended for memory or refused by the disk limit; the host never gives more than both together; a neighbour goes on",
		Attack: Payload{Code: growCode(take), Limits: l}, Needs: needs,
		Around: func(t *trial) func() {
			stopVictim, grown := t.victim(), growth(shmem)
			return func() {
				t.notes["shmem"] = fmt.Sprint(grown() >> 20)
				stopVictim()
			}
		},
		Judge: func(t *trial) error {
			mib, err := strconv.ParseInt(t.notes["shmem"], 10, 64)
			for range 2 { // others on the host take some, too, but not each time
				if mib > 160 {
					grown := growth(shmem)
					t.run(t.payload)
					mib = grown() >> 20
				}
			}
			if mib > 160 {
				err = fmt.Errorf("the host's shared memory grew by %d MiB", mib)
			}
			return errors.Join(err, judge(t), t.victimFine())
		},
		Control: Control{Without: "the low limit", Run: func(a *arena) error {
			t := a.run(Payload{Code: growCode(take), Limits: sandbox.Limits{MemoryBytes: 400 << 20, DiskBytes: 300 << 20}})
			return t.said("grown", fmt.Sprint(200<<20))
		}},
	}
}

func oomKilled(t *trial) error { return t.ended(sandbox.StatusKilled, sandbox.CauseMemory) }

func diskFull(t *trial) error {
	if t.result.Usage.DiskPeakBytes > 33<<20 {
		return fmt.Errorf("%d bytes on the disk", t.result.Usage.DiskPeakBytes)
	}
	return t.said("error", "ENOSPC")
}

func reCases() []Case {
	quota := sandbox.Limits{DiskBytes: 16 << 20, Inodes: 500}
	return []Case{
		hog("RE-01", "growing memory", "keep.append(b'x' * (8 << 20))", oomKilled, sandbox.FeatureMemory),
		hog("RE-02a", "anonymous files (memfd)", "f = os.memfd_create('m'); os.write(f, b'x' * (8 << 20)); keep.append(f)", oomKilled, sandbox.FeatureMemory),
		hog("RE-02b", "System V shared memory", "i = libc.shmget(0, 8 << 20, 0o1600); libc.shmat.restype = ctypes.c_void_p; p = libc.shmat(i, None, 0); ctypes.memset(p, 1, 8 << 20); libc.shmdt(ctypes.c_void_p(p))", oomKilled, sandbox.FeatureMemory),
		hog("RE-02c", "shared anonymous mappings", "import mmap; m = mmap.mmap(-1, 8 << 20); m.write(b'x' * (8 << 20)); keep.append(m)", oomKilled, sandbox.FeatureMemory),
		hog("RE-02d", "/dev/shm", "open('/dev/shm/f%d' % n, 'wb', buffering=0).write(b'x' * (8 << 20)) == 8 << 20 or os.write(os.open('/dev/shm/more', os.O_CREAT | os.O_WRONLY), b'x')", diskFull),
		hog("RE-02e", "deleted files that are still open", "f = os.open('/tmp/f', os.O_CREAT | os.O_RDWR | os.O_TRUNC); os.unlink('/tmp/f'); os.posix_fallocate(f, 0, 8 << 20); keep.append(f)", diskFull),
		hog("RE-03a", "memory of children, each below the limit", "p = os.fork(); p or (globals().update(k=b'x' * (8 << 20)), time.sleep(60))", oomKilled, sandbox.FeatureMemory),
		{
			ID: "RE-03b", Title: "memory of the kernel: pipes, sockets, path names", Level: User, Severity: HostDoS, Source: "own",
			Expect: "charged to the sandbox; the host's free memory stays", Needs: []string{sandbox.FeatureMemory},
			Attack: Payload{Code: kernelMemoryCode, Limits: sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 10_000}},
			Around: func(t *trial) func() {
				taken := growth(func() int64 { return -memAvailable() })
				return func() { t.notes["memory"] = fmt.Sprint(taken() >> 20) }
			},
			Judge: func(t *trial) error {
				t.Logf("the host had %s MiB less", t.notes["memory"])
				return oomKilled(t)
			},
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: kernelMemoryCode, Limits: sandbox.Limits{MemoryBytes: 1 << 30}})
				return t.said("buffers", "done")
			}},
		},
		{
			ID: "RE-03c", Title: "memory in buffers of TCP", Level: User, Severity: HostDoS, Source: "own",
			Expect: "no more than the memory limit", Needs: []string{sandbox.FeatureMemory},
			Attack: Payload{Code: networkMemoryCode, Limits: sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 60_000}},
			Judge: func(t *trial) error {
				if t.result != nil && t.result.Cause.Kind == sandbox.CauseMemory {
					return nil // version 2 counts all of it together
				}
				return t.said("held", "little")
			},
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: networkMemoryCode, Limits: sandbox.Limits{MemoryBytes: 1 << 30, WallTimeMS: 60_000}})
				return t.said("held", "much")
			}},
		},
		{
			ID: "RE-16", Title: "taking the host's pseudo-terminals", Level: User, Severity: PeerDoS, Source: "own",
			Expect: "ENOSPC after 64",
			Attack: Payload{Code: `
n = 0
try:
    while n < 100: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY); n += 1
except OSError as e: say("end", name(e.errno))
say("terminals", n)
`},
			Judge: func(t *trial) error { return errors.Join(t.said("terminals", "64"), t.said("end", "ENOSPC")) },
			Control: Control{Without: "the limit of the sandbox's own", Run: func(*arena) error {
				for range 65 {
					f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
					if err != nil {
						return err
					}
					defer f.Close()
				}
				return nil
			}},
		},
		{
			ID: "RE-04", Title: "filling the disk", Level: User, Severity: HostDoS, Source: "brief", Expect: "ENOSPC at the limit in every writable place together",
			Attack: Payload{Code: `
total = 0
for d in "/home/user /tmp /var/tmp /dev/shm".split():
    f = os.open(d + "/fill", os.O_CREAT | os.O_WRONLY)
    try:
        while True: total += os.write(f, bytes(65536))
    except OSError as e: say(d, name(e.errno))
    if total > 64 << 20: break
say("total", total)
sys.exit(3)
`, Limits: quota},
			Judge: func(t *trial) error {
				total := doorValues(t.result.Stdout)["total"]
				var n int64
				if _, err := fmt.Sscan(total, &n); err != nil || n > 16<<20 || n < 15<<20 {
					return fmt.Errorf("%s bytes fitted on a disk of %d", total, 16<<20)
				}
				return t.ended(sandbox.StatusFailed, sandbox.CauseDisk)
			},
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: "open('f', 'wb').write(bytes(40 << 20)); say('wrote', 40)"})
				return t.said("wrote", "40")
			}},
		},
		{
			ID: "RE-05", Title: "empty files, directories, links and pipes without end", Level: User, Severity: HostDoS, Source: "brief", Expect: "ENOSPC at the limit",
			Attack: Payload{Code: `
n = 0
for make in (lambda p: open(p, "w").close(), os.mkdir, lambda p: os.symlink("x", p), os.mkfifo):
    try:
        while n < 2000: make("/tmp/%d" % n); n += 1
    except OSError as e: say("error", name(e.errno))
say("made", n)
sys.exit(3)
`, Limits: quota},
			Judge: func(t *trial) error {
				var n int
				if _, err := fmt.Sscan(doorValues(t.result.Stdout)["made"], &n); err != nil || n > 500 || n < 490 {
					return fmt.Errorf("%d files in a sandbox for 500", n)
				}
				return t.ended(sandbox.StatusFailed, sandbox.CauseInodes)
			},
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: "for i in range(2000): open('/tmp/%d' % i, 'w').close()\nsay('made', 2000)"})
				return t.said("made", "2000")
			}},
		},
		{
			ID: "RE-06", Title: "more descriptors and larger files than allowed", Level: User, Severity: SelfDoS, Source: "own", Expect: "EMFILE at open_files, EFBIG at file_size_bytes",
			Attack: Payload{Code: `
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
f = os.open("big", os.O_CREAT | os.O_RDWR)
attempt("write", lambda: os.pwrite(f, b"x" * 10, (2 << 20)) and None)
attempt("fallocate", lambda: os.posix_fallocate(f, 0, 3 << 20))
n = 0
try:
    while n < 200: os.dup(0); n += 1
except OSError as e: say("dup", name(e.errno))
say("few", n < 64)
`, Limits: sandbox.Limits{OpenFiles: 64, FileSizeBytes: 1 << 20}},
			Doors: []Door{{"write", "EFBIG", "ok"}, {"fallocate", "EFBIG", "ok"}, {"dup", "EMFILE", ""}, {"few", "True", "False"}},
			Control: Control{Without: "the limits", Run: func(a *arena) error {
				t := a.run(Payload{Code: "f = os.open('big', os.O_CREAT | os.O_RDWR); os.posix_fallocate(f, 0, 3 << 20)\nfor i in range(150): os.dup(0)\nsay('fine', 1)"})
				return t.said("fine", "1")
			}},
		},
	}
}

// networkMemoryCode sends over loopback connections what nobody reads, some 200 MiB.
const networkMemoryCode = `
import socket
server = socket.create_server(("127.0.0.1", 0))
keep, held = [], 0
for n in range(60):
    a = socket.create_connection(server.getsockname()); keep += [a, server.accept()[0]]
    a.setblocking(False)
    for idle in range(3):
        try:
            while True: held += a.send(bytes(65536))
        except OSError: time.sleep(.002)
print("MiB", held >> 20)
say("held", "little" if held < 80 << 20 else "much")
`

// kernelMemoryCode fills sockets and pipes, up to about 200 MiB.
const kernelMemoryCode = `
import socket, fcntl
for child_number in range(3):
    if os.fork(): continue
    keep = []
    try:
        while len(keep) < 100:
            a, b = socket.socketpair(); a.setblocking(False); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20); keep += [a, b]
            try:
                while True: a.send(bytes(32768))
            except BlockingIOError: pass
    except OSError: pass
    time.sleep(3); os._exit(0)
time.sleep(2)
say("buffers", "done")
`

// sharedCases use up what the kernel counts for the whole host.
func sharedCases() []Case {
	inotify := `
n = 0
while n < 250 and libc.inotify_init1(0) >= 0: n += 1
say("instances", n)
time.sleep(0.7)
`
	pending := `
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
n = 0
while n < 200000 and libc.sigqueue(os.getpid(), 40, None) == 0: n += 1
say("queued", n)
time.sleep(0.7)
`
	return []Case{
		{
			ID: "RE-10", Title: "using up the inotify instances that the kernel counts for whoever made the sandbox", Level: User, Severity: HostDoS, Source: "found here",
			Expect: "a handful for each sandbox; the host can still make one", Attack: Payload{Code: inotify},
			Around: func(t *trial) func() { return t.hostWorks(makeInotify) },
			Judge: func(t *trial) error {
				return errors.Join(t.stillWorks(), t.atMost("instances", 8))
			},
			Control: Control{Without: "the quota of the sandbox's user namespace", Run: func(a *arena) error {
				out, err := a.jail(Payload{Code: strings.ReplaceAll(inotify, "0.7", "0")})
				if err != nil || !strings.Contains(out, "instances 1") {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
			Twin: &Twin{What: "watching a directory", Payload: Payload{Language: "javascript", Code: "const fs = require('fs'); const w = fs.watch('.', (e, f) => { console.log('saw', f); w.close() }); fs.writeFileSync('new', 'x')"}, Want: "saw new"},
		},
		{
			ID: "RE-11", Title: "queueing signals until nobody on the host can make a timer", Level: User, Severity: HostDoS, Source: "found here",
			Expect: "EAGAIN early; the host can still make timers", Attack: Payload{Code: pending},
			Around: func(t *trial) func() { return t.hostWorks(makeTimer) },
			Judge: func(t *trial) error {
				return errors.Join(t.stillWorks(), t.atMost("queued", 1024))
			},
			Control: Control{Without: "the limit on pending signals", Run: func(a *arena) error {
				out, err := a.jail(Payload{Code: strings.ReplaceAll(strings.ReplaceAll(pending, "0.7", "0"), "200000", "5000")})
				if err != nil || !strings.Contains(out, "queued 5000") {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
			Twin: &Twin{What: "a hundred timers", Payload: Payload{Code: "import threading\nts = [threading.Timer(.01, lambda: None) for i in range(20)]\nfor t in ts: t.start()\nfor t in ts: t.join()\nsay('rang', len(ts))"}, Want: "rang 20"},
		},
		{
			ID: "RE-12", Title: "epoll, eventfd, timerfd and POSIX timers, file locks: as many as there are", Level: User, Severity: PeerDoS, Source: "isolate 2.5 (flock)",
			Expect: "the sandbox meets its own limits; a neighbour and the host go on",
			Attack: Payload{Code: `
import fcntl, select
kinds = dict(epoll=select.epoll, eventfd=lambda: os.eventfd(0), pipe=os.pipe, memfd=lambda: os.memfd_create("x"))
for k, f in kinds.items():
    def count():
        keep, n = [], 0
        try:
            while n < 3000: keep.append(f()); n += 1
        except OSError as e: return name(e.errno)
        return n
    say(k, child(count))
def timers():
    t = ctypes.c_void_p(); n = 0
    while n < 20000 and libc.timer_create(1, None, ctypes.byref(t)) == 0: n += 1
    return n if n == 20000 else "EAGAIN"
say("timers", child(timers))
fcntl.flock(os.open("/usr/bin/id", os.O_RDONLY), fcntl.LOCK_EX); say("flock", "held")
time.sleep(0.3)
`},
			Doors:  []Door{{"epoll", "EMFILE", ""}, {"eventfd", "EMFILE", ""}, {"pipe", "EMFILE", ""}, {"memfd", "EMFILE", ""}, {"timers", "EAGAIN", ""}},
			Around: func(t *trial) func() { return t.victim() },
			Judge:  func(t *trial) error { return t.victimFine() },
			Control: Control{Without: "the limits", Run: func(a *arena) error {
				out, err := a.jail(Payload{Code: "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))\nfor i in range(3000): os.eventfd(0)\nsay('eventfd', 3000)"})
				if err != nil || !strings.Contains(out, "eventfd 3000") {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
		},
	}
}

// hostWorks tries something on the host again and again while an attack goes on.
func (t *trial) hostWorks(try func() error) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if err := try(); err != nil {
				t.mu.Lock()
				t.notes["host"] = err.Error()
				t.mu.Unlock()
			}
			select {
			case <-quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}

func (t *trial) stillWorks() error {
	if s := t.notes["host"]; s != "" {
		return fmt.Errorf("meanwhile on the host: %s", s)
	}
	return nil
}

func (t *trial) atMost(key string, most int) error {
	var n int
	if _, err := fmt.Sscan(doorValues(t.result.Stdout)[key], &n); err != nil || n > most {
		return fmt.Errorf("%s: %d, more than %d (%w)", key, n, most, err)
	}
	return nil
}

func makeInotify() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		err = unix.Close(fd)
	}
	return os.NewSyscallError("inotify_init1", err)
}

// makeTimer makes a POSIX timer, which is charged like a queued signal.
func makeTimer() error {
	id := make([]byte, 8)
	if err := timerCreate(id); err != nil {
		return err
	}
	return timerDelete(id)
}
