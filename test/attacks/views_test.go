//go:build linux

package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// viewCases are attacks through what the host shows: its files and devices. A payload
// gets the shown paths as arguments, says "ready", and then waits for the end of its
// standard input; meanwhile the host, and a neighbour, do something.
func viewCases() []Case {
	return []Case{
		{
			ID: "VW-01", Title: "watching what the host and a neighbour open: inotify and dnotify", Level: User, Severity: HostLeak,
			Source: "own", Expect: "no event of anybody else's",
			Do: func(t *trial) error {
				return t.watched(t.insideWhile, func(n string) bool { return n == "0" })
			},
			Control: Control{Without: "layers of the sandbox's own", Run: func(a *arena) error {
				return a.watched(a.outsideWhile, func(n string) bool { return n != "0" })
			}},
			Twin: &Twin{What: "watching one's own files", Payload: Payload{Code: ownWatchCode}, Want: "own True"},
		},
		{
			ID: "VW-02", Title: "locks on every directory and file that is shown: flock, POSIX, open file descriptions', leases", Level: User, Severity: HostDoS,
			Source: "isolate 2.5 (flock)", Expect: "the program has its locks; the host and a neighbour can lock and open the same ones",
			Do: func(t *trial) error { return t.locked(t.insideWhile, nobody) },
			Control: Control{Without: "layers of the sandbox's own", Run: func(a *arena) error {
				return a.locked(a.outsideWhile, everyLock)
			}},
			Twin: &Twin{What: "locks between two processes of a sandbox", Payload: Payload{Language: "shell", Code: "flock -n f sh -c '! flock -n f true' && echo excluded"}, Want: "excluded"},
		},
		{
			ID: "VW-03", Title: "time stamps, modes, owners and attributes of everything that is shown, devices too", Level: User, Severity: Integrity,
			Source: "own", Expect: "refused; no inode of the host or of a neighbour has the time stamp",
			Do: func(t *trial) error { return t.stamped() },
			Control: Control{Without: "views that are read-only, or one's own", Run: func(a *arena) error {
				out, err := exec.CommandContext(a.Context(), "unshare", "-m", "sh", "-ec", `cd "$1"; mknod null c 1 3; touch view; mount --bind null view; touch -d @1234567890 view; stat -c %Y null`, "sh", a.dir).CombinedOutput()
				if err != nil || strings.TrimSpace(string(out)) != stamp {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
			Twin: &Twin{What: "devices that work", Payload: Payload{Language: "shell", Code: "echo gone > /dev/null; head -c 5 /dev/zero | tr '\\0' z; head -c 3 /dev/urandom | wc -c; echo x > /dev/full || echo full"}, Want: "zzzzz3\nfull"},
		},
		{
			ID: "VW-04", Title: "flushing the host's disks: sync, syncfs, fsync, sync_file_range, msync", Level: User, Severity: PeerDoS,
			Source: "own", Expect: "what the host has not written yet stays so",
			Do: func(t *trial) error { return t.flushed(t.inside, true) },
			Control: Control{Without: "layers of the sandbox's own", Run: func(a *arena) error {
				return a.flushed(a.outside, false)
			}},
			Twin: &Twin{What: "flushing one's own files", Payload: Payload{Code: "import mmap\nf = open('f', 'w+b'); f.write(b'x' * 4096); f.flush(); os.fsync(f); os.fdatasync(f); m = mmap.mmap(f.fileno(), 4096); m[0] = 1; m.flush(); say('flushed', 1)"}, Want: "flushed 1"},
		},
		{
			ID: "VW-05", Title: "what the host has in memory: asking, and throwing it out", Level: User, Severity: Lateral,
			Source: "Gruss et al., Page Cache Attacks", Expect: "no call tells; the host's pages stay",
			Do: func(t *trial) error { return t.resident(t.inside, true) },
			Control: Control{Without: "the filter and layers of the sandbox's own", Run: func(a *arena) error {
				return a.resident(a.outside, false)
			}},
			Twin: &Twin{What: "advice that is taken", Payload: Payload{Code: "f = open('/usr/bin/env', 'rb'); [os.posix_fadvise(f.fileno(), 0, 0, i) for i in range(6)]; say('read', os.preadv(f.fileno(), [bytearray(9)], 0))"}, Want: "read 9"},
		},
		{
			ID: "VW-06", Title: "set-user-id and set-group-id files in a directory that is mounted for writing", Level: User, Severity: Escape,
			Source: "Docker volumes", Expect: "no file on the host has the bits, by whichever call",
			Do: func(t *trial) error { return t.setID() },
			Control: Control{Without: "the filter", Run: func(a *arena) error {
				dir := filepath.Join(a.dir, "host")
				if err := os.Mkdir(dir, 0o755); err != nil {
					return err
				}
				if _, err := a.outside(setIDCode, dir); err != nil {
					return err
				}
				if found := setIDFiles(dir); len(found) != len(setIDCalls) {
					return fmt.Errorf("only %v", found)
				}
				return nil
			}},
		},
		{
			ID: "VW-08", Title: "locking and watching all six device files", Level: User, Severity: Lateral,
			Source: "own", Expect: "nobody else notices, and nobody else is noticed", Needs: []string{sandbox.FeatureDevicesOwn},
			Do: func(t *trial) error { return t.devices(t.insideWhile, nobody) },
			Control: Control{Without: "device files of the sandbox's own", Run: func(a *arena) error {
				return a.devices(a.outsideWhile, everyDevice)
			}},
		},
		{
			ID: "VW-07", Title: "where on which disk of the host's a file lies", Level: User, Severity: HostLeak,
			Source: "own", Expect: "no extents, no names of devices",
			Attack: Payload{Code: `
import fcntl, struct
buf = bytearray(32 + 56 * 4); struct.pack_into('QQIIII', buf, 0, 0, 1 << 30, 0, 0, 4, 0)
fd = os.open('/usr/bin/env', os.O_RDONLY)
attempt('extents', lambda: fcntl.ioctl(fd, 0xC020660B, buf) and None)
say('disks', sum(' - ' in l and l.split(' - ')[1].split()[1].startswith('/dev/') for l in open('/proc/self/mountinfo')))
`},
			Doors:   []Door{{"extents", "ENOTSUP|ENOTTY", "0"}, {"disks", "0", "[1-9]\\d*"}},
			Control: Control{Without: "the filter and layers of the sandbox's own", Jail: true},
		},
		laterCase(),
	}
}

// ownWatchCode watches a directory of the sandbox's own.
const ownWatchCode = `
fd = libc.inotify_init1(os.O_NONBLOCK); libc.inotify_add_watch(fd, b'/tmp', 0x100)
open('/tmp/new', 'w').close(); say('own', b'new' in os.read(fd, 4096))`

// stamp is a time that nothing has by chance.
const stamp = "1234567890"

// dialogue runs a Python program and returns what it prints.
type dialogue func(code string, args ...string) (string, error)

// place is where a program runs: insideWhile, outsideWhile. during is called when it is
// ready.
type place func(during func() error) dialogue

// ready is where a payload waits.
const ready = "\nsay('ready', 1); sys.stdin.read()\n"

// converse starts a program and ends its standard input when it is ready and during is
// over.
func (a *arena) converse(start func(stdin io.Reader, stdout io.Writer) (wait func() error, err error), during func() error) (string, error) {
	stdin, end := io.Pipe()
	lines, stdout := io.Pipe()
	defer lines.Close()
	wait, err := start(stdin, stdout)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	got, done := make(chan struct{}), make(chan error, 1)
	go func() {
		err := wait()
		_ = stdout.Close()
		done <- err
	}()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		b := make([]byte, 4096)
		for waiting := true; ; {
			n, err := lines.Read(b)
			out.Write(b[:n])
			if waiting && strings.Contains(out.String(), "ready 1\n") {
				waiting = false
				close(got)
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case <-got:
		if during != nil {
			err = during()
		}
	case <-copied:
		err = fmt.Errorf("it was never ready: %q", out.String())
	}
	_ = end.Close()
	err = errors.Join(err, <-done)
	<-copied
	return out.String(), err
}

// insideWhile runs a payload in a living sandbox of its own.
func (a *arena) insideWhile(during func() error) dialogue {
	return func(code string, args ...string) (string, error) {
		g, _, err := a.open(sandbox.Limits{})
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(a.Context(), patience)
		defer cancel()
		return a.converse(func(stdin io.Reader, stdout io.Writer) (func() error, error) {
			p, err := g.Start(ctx, guest.Command{
				Args: append([]string{"/usr/bin/python3", "-c", a.prelude + code}, args...), Env: []string{"PATH=/usr/bin:/bin"}, Dir: sandbox.Home,
			}, guest.Streams{Stdin: stdin, Stdout: stdout, Stderr: stdout})
			if err != nil {
				return nil, err
			}
			return func() error { _, err := p.Wait(ctx); return err }, nil
		}, during)
	}
}

// outsideWhile runs it on the host.
func (a *arena) outsideWhile(during func() error) dialogue {
	return func(code string, args ...string) (string, error) {
		return a.converse(func(stdin io.Reader, stdout io.Writer) (func() error, error) {
			cmd := exec.CommandContext(a.Context(), "/usr/bin/python3", append([]string{"-c", a.prelude + code}, args...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = nil, stdout, stdout, a.dir
			in, err := cmd.StdinPipe()
			if err != nil {
				return nil, err
			}
			go func() { _, _ = io.Copy(in, stdin); _ = in.Close() }()
			if err := cmd.Start(); err != nil {
				return nil, err
			}
			return cmd.Wait, nil
		}, during)
	}
}

func (a *arena) inside(code string, args ...string) (string, error) {
	return a.insideWhile(nil)(code, args...)
}

func (a *arena) outside(code string, args ...string) (string, error) {
	return a.outsideWhile(nil)(code, args...)
}

// shown lists the directories and the files of the host that sandboxes see.
func shown() (dirs, files []string, err error) {
	t, err := imagetest.Templates(sandbox.TemplateHost)
	for _, b := range t.Binds {
		if b.Dir {
			dirs = append(dirs, b.Target)
		} else {
			files = append(files, b.Target)
		}
	}
	return append(dirs, "/usr/bin"), append(files, "/usr/lib/os-release"), err
}

// watched has a payload watch all that is shown, and the host and a neighbour use it.
func (a *arena) watched(where place, fine func(events string) bool) error {
	dirs, files, err := shown()
	if err != nil {
		return err
	}
	neighbour, _, err := a.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	use := func() error {
		for range 20 {
			for _, d := range dirs {
				if _, err := os.ReadDir(d); err != nil {
					return err
				}
			}
			for _, f := range append(files, "/usr/bin/env") {
				if _, err := os.ReadFile(f); err != nil {
					return err
				}
			}
		}
		out, err := a.shell(neighbour, "/", slices.Concat([]string{`for i in "$@"; do cat "$i" > /dev/null 2>&1 || ls "$i" > /dev/null; done; /usr/bin/env > /dev/null; echo used`, "sh"}, dirs, files)...)
		if err == nil && !strings.Contains(out, "used") {
			err = fmt.Errorf("the neighbour: %q", out)
		}
		return err
	}
	out, err := where(use)(watchCode, slices.Concat(dirs, files)...)
	if err != nil {
		return err
	}
	values := doorValues(out)
	for _, key := range slices.Concat([]string{"dnotify"}, dirs, files) {
		if n := values[key]; n == "" || !fine(n) {
			err = errors.Join(err, fmt.Errorf("%s: %q events", key, n))
		}
	}
	return err
}

// watchCode prints how many events there were for each argument.
const watchCode = `
import fcntl, struct
fd = libc.inotify_init1(os.O_NONBLOCK)
names, count = {}, {}
for p in sys.argv[1:]:
    wd = libc.inotify_add_watch(fd, p.encode(), 0xfff)
    if wd >= 0: names[wd] = p; count[p] = 0
hits = []
signal.signal(signal.SIGIO, lambda *a: hits.append(1))
d = os.open('/usr/bin', os.O_RDONLY)
fcntl.fcntl(d, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_ATTRIB | fcntl.DN_MULTISHOT)
try: os.read(fd, 65536) # our own opening
except BlockingIOError: pass
` + ready + `
try:
    while True:
        b = os.read(fd, 65536); i = 0
        while i < len(b):
            wd, mask, _, n = struct.unpack_from('iIII', b, i); i += 16 + n
            if wd in names: count[names[wd]] += 1
except BlockingIOError: pass
os.close(d); signal.signal(signal.SIGIO, signal.SIG_IGN) # Python's end takes the handler away
say('dnotify', len(hits))
for p in sys.argv[1:]: say(p, count.get(p, 'unwatched'))
`

// stamped has a payload stamp everything, and looks for the stamp.
func (t *trial) stamped() error {
	dirs, files, err := shown()
	if err != nil {
		return err
	}
	paths := slices.Concat(dirs, files, shownDevices, []string{"/", "/dev", "/proc", "/usr/bin/env"})
	out, err := t.inside(stampCode, paths...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); !slices.Contains([]string{"EROFS", "EPERM", "EACCES", "ENOTSUP"}, value) && key != "ready" {
			err = errors.Join(err, fmt.Errorf("%s", line))
		}
	}
	neighbour, _, openErr := t.open(sandbox.Limits{})
	if openErr != nil {
		return openErr
	}
	list, statErr := t.shell(neighbour, "/", slices.Concat([]string{`stat -c '%Y %X %n' "$@"`, "sh"}, paths)...)
	if statErr != nil || strings.Contains(list, stamp) || !strings.Contains(list, "/dev/null") {
		err = errors.Join(err, fmt.Errorf("in a neighbour: %q %w", list, statErr))
	}
	for _, p := range paths {
		var st unix.Stat_t
		if statErr := unix.Stat(p, &st); statErr == nil && (fmt.Sprint(st.Mtim.Sec) == stamp || fmt.Sprint(st.Atim.Sec) == stamp) {
			err = errors.Join(err, fmt.Errorf("the host's %s has the stamp", p))
		}
	}
	return err
}

const stampCode = `
for p in sys.argv[1:]:
    attempt(p + ':times', lambda: os.utime(p, (` + stamp + `, ` + stamp + `)))
    attempt(p + ':now', lambda: os.utime(p))
    attempt(p + ':mode', lambda: os.chmod(p, 0o777))
    attempt(p + ':owner', lambda: os.chown(p, os.getuid(), os.getgid()))
    attempt(p + ':attribute', lambda: os.setxattr(p, 'user.x', b'1'))
` + ready
