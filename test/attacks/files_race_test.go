//go:build linux

package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// fsRaceCases are about paths that the host uses in a living sandbox, and about
// trees that are hard to take out or to remove.
func fsRaceCases() []Case {
	return []Case{
		{
			ID: "FS-02", Title: "writing a file through a symbolic link to /", Level: User, Severity: Escape, Source: "judge0 CVE-2024-28185",
			Expect: "refused; nothing is written on the host", Do: writeThroughLink,
			Control: Control{Without: "a host that writes by path", Run: func(a *arena) error {
				dir := a.hostShell(`ln -s "$1" d`, a.dir)
				if err := os.WriteFile(filepath.Join(dir, "d", "w"), nil, 0o600); err != nil {
					return err
				}
				return os.Remove(filepath.Join(a.dir, "w"))
			}},
		},
		{
			ID: "FS-03", Title: "a directory that turns into a link and back while the host reads and writes below it", Level: User, Severity: Escape,
			Source: "docker cp CVE-2018-15664", Expect: "each operation sees the directory or is refused, never what the link points to", Do: raceLinks,
			Control: Control{Without: "a host that reads by path", Run: raceOnHost},
		},
		{
			ID: "FS-04", Title: "paths that lead outside or that nobody can print", Level: Spec, Severity: HostLeak, Source: "Go os.Root CVE-2026-39822, CVE-2026-27139",
			Expect: "bad_path before anything is made; below the guest protocol, nothing outside the sandbox's own root", Do: hostilePaths,
			Control: Control{Without: "a host that joins paths", Run: func(a *arena) error {
				a.canary()
				return a.leaks(os.ReadFile(filepath.Join(a.TempDir(), strings.Repeat("../", 20), a.dir, "canary")))
			}},
		},
		{
			ID: "FS-17", Title: "a working directory that leads outside", Level: Spec, Severity: Escape, Source: "runc CVE-2024-21626",
			Expect: "refused, or a directory inside the sandbox's root", Do: hostileDirs,
			Control: Control{Without: "a change of directory by path with a descriptor left open", Run: func(a *arena) error {
				out, err := a.jail(Payload{Code: `os.chdir("/proc/self/fd/3"); say("host", os.path.exists("etc/passwd"))`})
				if err != nil || !strings.Contains(out, "host True") {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
		},
		{
			ID: "FS-19", Title: "a tree of directories 5,000 deep", Level: User, Severity: PeerDoS, Source: "judge0 CVE-2024-28189",
			Expect: "the run ends in time, the tree is gone", Attack: Payload{Code: deepCode, Limits: sandbox.Limits{WallTimeMS: 100_000, CPUTimeMS: 100_000}, Quick: time.Minute, Artifacts: []string{"**"}},
			Judge: func(t *trial) error { return errors.Join(t.said("depth", "5000"), t.succeeded()) },
			Control: Control{Without: "a host that removes by path", Run: func(a *arena) error {
				dir := a.hostPython(deepCode)
				long := filepath.Join(dir, strings.Repeat("d/", 5000))
				_, err := os.Lstat(long)
				if cleanup := os.RemoveAll(dir); cleanup != nil {
					return cleanup
				}
				if errors.Is(err, unix.ENAMETOOLONG) {
					return nil
				}
				return fmt.Errorf("the path can be used: %w", err)
			}},
		},
		{
			ID: "FS-20", Title: "100,000 files whose names cannot be printed", Level: User, Severity: PeerDoS, Source: "own",
			Expect: "the inode limit stops it; the result stays small", Attack: Payload{Code: manyCode, Quick: 15 * time.Second},
			Judge: func(t *trial) error {
				if n := len(t.everything()); n > 64<<10 {
					return fmt.Errorf("the result has %d bytes", n)
				}
				return errors.Join(t.said("error", "ENOSPC"), t.cameOut(0))
			},
			Control: Control{Without: "the inode limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: manyCode, Limits: sandbox.Limits{Inodes: 200_000}, Artifacts: []string{"none"}})
				return t.said("made", "100000")
			}},
		},
		{
			ID: "FS-21", Title: "sparse files and many names for one file, which are larger outside than inside", Level: User, Severity: HostDoS, Source: "own",
			Expect: "no more bytes come out than the sandbox's disk may hold",
			Attack: Payload{Code: sparseCode, Artifacts: []string{"*.bin"}, Limits: sandbox.Limits{DiskBytes: 16 << 20}, Quick: 10 * time.Second},
			Judge: func(t *trial) error {
				var total int64
				for _, f := range t.result.Artifacts {
					total += f.Size
				}
				if total > 16<<20 {
					return fmt.Errorf("%d bytes came out of a sandbox with a disk of %d", total, 16<<20)
				}
				return errors.Join(t.said("huge", "EFBIG"), t.said("made", "100"))
			},
			Control: Control{Without: "a bound on what comes out", Run: func(a *arena) error {
				t := a.run(Payload{Code: sparseCode, Limits: sandbox.Limits{DiskBytes: 16 << 20}, Artifacts: []string{"none"}})
				return t.said("apparent", fmt.Sprint(100*(8<<20))) // the payload itself sees 50 times its disk
			}},
			Twin: &Twin{What: "one large file", Payload: Payload{Code: "open('f.bin', 'wb').write(bytes(12 << 20)); say('ok', 1)", Artifacts: []string{"*.bin"}, Limits: sandbox.Limits{DiskBytes: 16 << 20}}, Want: "ok"},
		},
		{
			ID: "FS-24", Title: "a tree of sparse files, fetched as an archive of each format", Level: User, Severity: HostDoS, Source: "own",
			Expect: "refused as too_large before a byte comes out, naming a file; what the disk can hold comes out",
			Do:     func(t *trial) error { return t.sparseTree(0, packsNothing) },
			Control: Control{Without: "a bound on bytes", Run: func(a *arena) error {
				return (&trial{arena: a}).sparseTree(1<<40, packsMore)
			}},
		},
		{
			ID: "FS-22", Title: "loops of symbolic links and links to oneself among the artifacts", Level: User, Severity: PeerDoS, Source: "own",
			Expect: "nothing is followed; the run ends in time",
			Attack: Payload{Language: "shell", Code: "ln -s . self; ln -s b a; ln -s a b; mkdir d; ln -s .. d/up; echo 1 > d/real", Artifacts: []string{"**", "a", "self/self/self/d/real"}, Quick: 5 * time.Second},
			Judge: func(t *trial) error {
				return errors.Join(t.cameOut(1, "d/real"), t.skipped("a", sandbox.CodeNotRegularFile))
			},
			Control: Control{Without: "a host that follows links", Run: func(a *arena) error {
				dir := a.hostShell("ln -s . self; mkdir d; echo 1 > d/real")
				return exists(filepath.Join(dir, "self/self/self/d/real"))
			}},
		},
	}
}

const deepCode = `
n = 0
while n < 5000: os.mkdir("d"); os.chdir("d"); n += 1
say("depth", n)
`

const manyCode = `
n = 0
try:
    while n < 100000: open(b"a\n\x1b[31m\xe2\x80\xae%d" % n, "w").close(); n += 1
except OSError as e: say("error", name(e.errno))
say("made", n)
`

const sparseCode = `
attempt("huge", lambda: os.truncate(os.open("h.bin", os.O_CREAT | os.O_RDWR), 1 << 50))
for i in range(50): os.truncate(os.open("s%d.bin" % i, os.O_CREAT | os.O_RDWR), 8 << 20)
open("one", "wb").write(bytes(8 << 20))
for i in range(50): os.link("one", "l%d.bin" % i)
files = [f for f in os.listdir() if f[0] in "sl" and f.endswith(".bin")]
say("made", len(files))
say("apparent", sum(os.stat(f).st_size for f in files))
`

// said checks one line of the payload's.
func (t *trial) said(key, value string) error {
	if t.result == nil {
		return t.err
	}
	if got := doorValues(t.result.Stdout)[key]; got != value {
		return fmt.Errorf("%s is %q, not %q", key, got, value)
	}
	return nil
}

func (t *trial) succeeded() error { return t.ended(sandbox.StatusSucceeded, sandbox.CauseExited) }

// ended checks status and cause.
func (t *trial) ended(status sandbox.Status, cause sandbox.CauseKind) error {
	if t.err != nil {
		return t.err
	}
	if t.result.Status != status || t.result.Cause.Kind != cause {
		return fmt.Errorf("%s %s, not %s %s", t.result.Status, t.result.Cause.Kind, status, cause)
	}
	return nil
}

func exists(name string) error {
	_, err := os.Lstat(name)
	return err
}

// refusedBy checks that an error is one of ours.
func refusedBy(err error, codes ...string) error {
	got := ""
	if err != nil {
		got = sandbox.AsError(err).Code
	}
	for _, c := range codes {
		if got == c {
			return nil
		}
	}
	return fmt.Errorf("error %w (code %q) instead of %v", err, got, codes)
}

func writeThroughLink(t *trial) error {
	g, _, err := t.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	if _, err := t.shell(g, "", "ln -s / d; ln -s "+t.dir+" out"); err != nil {
		return err
	}
	var errs []error
	for _, p := range []string{"d/tmp/pinfold-w", "out/w", "d/home/user/d/tmp/w"} {
		err := g.WriteFile(t.Context(), p, 0o644, 1, strings.NewReader("x"))
		errs = append(errs, refusedBy(err, sandbox.CodePathInvalid, sandbox.CodeNotRegularFile))
	}
	if exists("/tmp/pinfold-w") == nil || exists(filepath.Join(t.dir, "w")) == nil {
		errs = append(errs, errHit)
	}
	return errors.Join(errs...)
}

// raceLinks reads and writes below a path that changes all the time.
func raceLinks(t *trial) error {
	g, _, err := t.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	swap, err := g.Start(ctx, guest.Command{Args: []string{"/usr/bin/python3", "-c", t.prelude + swapCode, t.dir}}, guest.Streams{})
	if err == nil {
		err = waitFor(ctx, g, "away")
	}
	if err != nil {
		return err
	}
	seen, tries := 0, 0
	for ; tries < 2000 || seen == 0 && ctx.Err() == nil; tries++ { // on a busy machine it may hardly have begun
		var b bytes.Buffer
		if _, err := g.ReadFile(ctx, "d/hostname", 100, &b); err == nil {
			seen++
			if b.String() != "inside\n" {
				return fmt.Errorf("read %q", b.String())
			}
		}
		_ = g.WriteFile(ctx, "d/written", 0o644, 1, strings.NewReader("x")) // what matters is where it went
	}
	if err := swap.Signal(unix.SIGKILL, false); err != nil {
		return err
	}
	out, err := t.shell(g, "", "cat real/hostname d/hostname 2>/dev/null; ls "+t.dir+" 2>&1; ls -A /etc | grep -c written")
	if err != nil || !strings.HasSuffix(strings.TrimSpace(out), "0") || exists(filepath.Join(t.dir, "written")) == nil {
		return fmt.Errorf("written outside: %q %w", out, err)
	}
	t.Logf("%d of %d reads met the directory", seen, tries)
	if seen == 0 {
		return errors.New("the race never met the directory: it shows nothing")
	}
	return nil
}

// swapCode lets d be a directory, a link to /etc and a link to the first
// argument in turn.
const swapCode = `
import shutil
def become_d(name):
    while True:
        try: return os.rename(name, "d")
        except OSError: shutil.rmtree("d", True) # the host has made one, while there was none
os.mkdir("real"); open("real/hostname", "w").write("inside\n"); os.symlink("/etc", "link"); os.symlink(sys.argv[1], "away")
end = time.monotonic() + 60
while time.monotonic() < end:
    for n in ("real", "link", "real", "away"):
        become_d(n); time.sleep(0.0002); os.rename("d", n)
`

// raceOnHost is the same race against a host that reads by path.
func raceOnHost(a *arena) error {
	dir := a.TempDir()
	a.canary()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink(a.dir, filepath.Join(dir, "away"))); err != nil {
		return err
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, n := range []string{"real", "away"} {
				select {
				case <-quit:
					return
				default:
				}
				_ = os.Rename(filepath.Join(dir, n), filepath.Join(dir, "d"))
				time.Sleep(200 * time.Microsecond)
				_ = os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, n))
			}
		}
	}()
	defer func() { close(quit); <-done }()
	for range 20_000 {
		if b, err := os.ReadFile(filepath.Join(dir, "d", "canary")); err == nil {
			return a.leaks(b, nil)
		}
	}
	return errors.New("the race never met the link")
}

// hostilePaths tries paths against the request and against the protocol.
func hostilePaths(t *trial) error {
	bad := []string{
		"../x", "/abs", "a/../../x", "link/", "link/.", "a//b", "./x", "nul\x00x", "line\nbreak", "esc\x1b[0m", "bad\xff",
		"\u202egpj", strings.Repeat("a/", 2600) + "x", strings.Repeat("n", 256), "..", ".", "",
	}
	var errs []error
	for _, p := range bad {
		spec := sandbox.Spec{Code: "x", Language: "python", Files: []sandbox.File{{Path: p}}}
		errs = append(errs, refusedBy(spec.Validate(), sandbox.CodePathInvalid))
		spec = sandbox.Spec{Code: "x", Language: "python", Artifacts: []string{p}}
		errs = append(errs, refusedBy(spec.Validate(), sandbox.CodePathInvalid))
	}
	g, _, err := t.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	canary := t.canary()
	up := strings.Repeat("../", 40)
	for _, p := range []string{up + canary, canary, "/proc/1/root" + canary, "/proc/self/root" + canary, "/proc/self/cwd/../.." + canary, "/proc/thread-self/root" + canary} {
		var b bytes.Buffer
		if _, err := g.ReadFile(t.Context(), p, 1<<20, &b); err == nil || strings.Contains(b.String(), t.secret) {
			errs = append(errs, fmt.Errorf("%s can be read: %q", p, b.String()))
		}
		_ = g.WriteFile(t.Context(), p, 0o644, 1, strings.NewReader("x")) // below the sandbox's own /tmp it may
		_ = g.Remove(t.Context(), p)
		if err := t.leaks(os.ReadFile(canary)); err != nil {
			errs = append(errs, fmt.Errorf("%s led to the host: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// hostileDirs starts programs in directories that lead elsewhere.
func hostileDirs(t *trial) error {
	g, _, err := t.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	if _, err := t.shell(g, "", "ln -s / root; ln -s /proc/self/fd/3 fd; ln -s /proc/1/root one; ln -s /proc/1/cwd cwd"); err != nil {
		return err
	}
	canary := t.canary()
	dirs := []string{"/proc/self/fd/3", "/proc/self/fd/7", "/proc/1/root", "/proc/self/root", "root", "fd", "one", "cwd", "../../../..", "/", "/proc/1/cwd", "/dev/fd/5"}
	var errs []error
	for _, d := range dirs {
		out, err := t.shell(g, d, `pwd; cat ".$1" "$1" /etc/shadow 2>/dev/null; ls -d root boot sys/class srv 2>/dev/null; exit 0`, "sh", canary)
		if err != nil {
			continue // refused
		}
		if strings.Contains(out, t.secret) || strings.Contains(out, "unreachable") || len(strings.Fields(out)) > 1 && d != "root" {
			errs = append(errs, fmt.Errorf("in %s: %q", d, out))
		}
	}
	return errors.Join(errs...)
}

func dupWithoutCloexec(f *os.File) int { return must(unix.Dup(int(f.Fd()))) }

func closeFD(fd int) { _ = unix.Close(fd) }
