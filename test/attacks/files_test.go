//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

func fsCases() []Case {
	return []Case{
		{
			ID: "FS-01", Title: "a symbolic link to a file of the host, asked for as an artifact", Level: User, Severity: HostLeak,
			Source: "go-judge #176, judge0 CVE-2024-28185", Expect: "skipped as not_regular_file; nothing of the host's file comes out",
			Attack: Payload{Language: "shell", Code: linkCode, Artifacts: []string{"out.txt", "env.txt", "dir/shadow"}},
			Around: func(t *trial) func() {
				t.payload.Args = []string{t.canary()}
				return nil
			},
			Judge: func(t *trial) error {
				return errors.Join(t.skipped("out.txt", sandbox.CodeNotRegularFile), t.skipped("env.txt", sandbox.CodeNotRegularFile), t.cameOut(0))
			},
			Control: Control{Without: "a host that opens what it is asked for", Run: func(a *arena) error {
				dir := a.hostShell(linkCode, a.canary())
				return a.leaks(os.ReadFile(filepath.Join(dir, "out.txt")))
			}},
			Twin: &Twin{What: "a regular file of that name", Payload: Payload{Language: "shell", Code: "echo fine > out.txt; cat out.txt", Artifacts: []string{"out.txt"}}, Want: "fine"},
		},
		{
			ID: "FS-06", Title: "a named pipe as an artifact, which blocks whoever opens it", Level: User, Severity: PeerDoS,
			Source: "go-sandbox 134ae09", Expect: "skipped as not_regular_file at once",
			Attack:  Payload{Language: "shell", Code: "mkfifo p.txt", Artifacts: []string{"p.txt", "*"}, Quick: 3 * time.Second},
			Judge:   func(t *trial) error { return t.skipped("p.txt", sandbox.CodeNotRegularFile) },
			Control: Control{Without: "a host that opens what it is asked for", Run: blocksOnPipe},
			Twin:    &Twin{What: "a pipe between two processes", Payload: Payload{Language: "shell", Code: "mkfifo p; (echo through > p) & cat p; rm p"}, Want: "through"},
		},
		{
			ID: "FS-09", Title: "file names with line breaks, escape sequences, bidirectional marks, dashes and bytes that are not text", Level: User, Severity: Integrity,
			Source: "kubectl cp CVE-2019-1002101, -11246, -11249, -11251", Expect: "only names that can be printed come out; the rest is counted",
			Attack: Payload{Code: namesCode, Artifacts: []string{"**"}},
			Judge: func(t *trial) error {
				for name := range t.files {
					if !filepath.IsLocal(name) || sandbox.SafeText(name, 5000) != name || strings.Contains(name, "\n") {
						return fmt.Errorf("the name %q came out", name)
					}
				}
				if !strings.Contains(t.everything(), "cannot be printed") {
					return errors.New("nothing says that names were left out")
				}
				return t.cameOut(2, "-rf", strings.Repeat("n", 255))
			},
			Control: Control{Without: "a host that lists the directory", Run: func(a *arena) error {
				dir := a.hostPython(namesCode)
				entries, err := os.ReadDir(dir)
				if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "\x1b") }) {
					return fmt.Errorf("no hostile name arrived: %w", err)
				}
				return nil
			}},
		},
		{
			ID: "FS-11", Title: "set-user-id programs: one that goes in, one made inside, those of the host", Level: Input, Severity: Inside,
			Source: "bubblewrap", Expect: "the effective user stays; no_new_privs is set; every mount is nosuid",
			Attack: Payload{Code: suidCode, Inputs: []runs.Input{input("suid", 0o6755, must(os.ReadFile("/usr/bin/id")))}},
			Doors: []Door{
				{"euid", "1000", "0"}, {"made", "1000", ""}, {"su", "[^0].*", "0"}, {"nnp", "1", "0"}, {"suid_mounts", "0", "[1-9].*"}, {"mode", "755", "6755"},
			},
			Control: Control{Without: "nosuid, no_new_privs, another owner", Jail: true},
			Twin:    &Twin{What: "an executable input", Payload: Payload{Language: "shell", Code: "./tool", Files: []sandbox.File{{Path: "tool", Content: "#!/bin/sh\necho ran\n", Executable: true}}}, Want: "ran"},
		},
		{
			ID: "FS-12", Title: "settings of the kernel through /proc and /sys", Level: User, Severity: Escape, Source: "runc CVE-2025-52881",
			Expect: "none can be opened for writing; the host's values stay",
			Attack: Payload{Code: openForWriting(
				"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
				"/sys/power/state", "/sys/kernel/uevent_helper", "/proc/sys/user/max_user_namespaces", "/proc/self/oom_score_adj",
				"/proc/self/uid_map", "/proc/self/loginuid", "/proc/self/coredump_filter", "/proc/self/attr/current", "/proc/acpi/wakeup")},
			Doors: append(doors("ENOENT|EROFS|EACCES|EPERM", "/proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/modprobe"),
				doors("ENOENT|EROFS|EACCES|EPERM", "/proc/sys/vm/drop_caches /sys/power/state /proc/sys/user/max_user_namespaces /proc/self/oom_score_adj /proc/self/uid_map /proc/self/loginuid /proc/self/coredump_filter")...),
			Control: Control{Without: "own /proc, no /sys, another user", Jail: true},
		},
		{
			ID: "FS-15", Title: "writing to Pinfold's own program through /proc", Level: User, Severity: Escape, Source: "runc CVE-2019-5736",
			Expect: "no path leads to the agent; its program is unchanged afterwards (and after all cases)",
			Attack: Payload{Code: `
for p in ["/proc/1/exe", "/proc/%d/exe" % os.getppid(), "/proc/1/root/usr/bin/id", "/proc/1/cwd", "/proc/1/map_files"]:
    attempt(p.replace(str(os.getppid()), "PARENT") if not p.startswith("/proc/1/") else p, lambda: os.close(os.open(p, os.O_RDONLY)))
attempt("write", lambda: os.close(os.open("/proc/1/exe", os.O_RDWR)))
`},
			Doors:   append(doors("ENOENT|EACCES|EPERM", "/proc/1/exe /proc/1/root/usr/bin/id /proc/1/cwd"), Door{Key: "write", Shut: "ENOENT|EACCES", Open: "ETXTBSY|ok"}),
			Judge:   func(t *trial) error { t.checkAgent(); return nil },
			Control: Control{Without: "hidepid, a sealed program", Jail: true},
		},
		{
			ID: "FS-16", Title: "descriptors that were left open", Level: User, Severity: Escape, Source: "runc CVE-2024-21626",
			Expect: "0, 1 and 2 and nothing else, while the host has descriptors open without close-on-exec",
			Attack: Payload{Code: `
extra = []
for fd in range(3, 4096):
    try: extra.append(stat.S_IFMT(os.fstat(fd).st_mode)); last = fd
    except OSError: pass
say("extra", len(extra))
say("directories", extra.count(stat.S_IFDIR))
attempt("root", lambda: os.close(os.open("etc/passwd", os.O_RDONLY, dir_fd=3)))
say("kinds", all(stat.S_ISFIFO(os.fstat(f).st_mode) for f in (1, 2)))
attempt("dotdot", lambda: os.stat("../../../../../../etc/pinfold-canary", dir_fd=os.open("/", os.O_RDONLY)))
`},
			Doors: []Door{{"extra", "0", ""}, {"directories", "0", ""}, {"root", "EBADF|ENOTDIR", "ok"}},
			Around: func(t *trial) func() {
				f := must(os.OpenFile(t.canary(), os.O_RDONLY, 0))
				leaky := dupWithoutCloexec(f)
				return func() { _ = f.Close(); closeFD(leaky) }
			},
			Control: Control{Without: "close_range before the exec", Jail: true},
		},
		{
			ID: "FS-18", Title: "changing what is shown read-only: by opening, linking, renaming, O_TMPFILE, mount options", Level: User, Severity: Escape, Source: "own",
			Expect:  "EROFS, EXDEV or EPERM each; the host's files are unchanged",
			Attack:  Payload{Code: readOnlyCode},
			Doors:   doors("EROFS|EXDEV|EPERM|EACCES|ENOENT", "write truncate chmod chown utime unlink rename_out rename_in link symlink mkdir tmpfile xattr"),
			Control: Control{Without: "read-only mounts, another user", Jail: true},
			Twin:    &Twin{What: "all of that at home", Payload: Payload{Code: homeFilesCode}, Want: "all fine"},
		},
		{
			ID: "FS-23", Title: "reading what a host keeps secret", Level: User, Severity: HostLeak, Source: "every sandbox that shows the host's root",
			Expect: "nothing of it exists inside",
			Attack: Payload{Code: `
for p in sys.argv[1:] or "/etc/shadow /etc/ssl/private /root /var/lib /var/log /boot /sys/kernel /proc/kcore /proc/kallsyms /proc/sys/kernel/core_pattern /proc/1/environ /proc/cmdline /etc/machine-id /run/pinfold /srv /opt /home".split():
    attempt(p, lambda: (os.listdir(p) if os.path.isdir(p) else open(p, "rb").read(1)) and None)
say("homes", len(os.listdir("/home")) - 1)
say("users", sum(1 for l in open("/etc/passwd")) - 3)
`},
			Doors: append(doors("ENOENT|EACCES", "/etc/shadow /root /var/lib /var/log /boot /sys/kernel /proc/kallsyms /proc/sys/kernel/core_pattern /proc/1/environ /proc/cmdline /etc/ssl/private"),
				Door{"users", "0", ""}),
			Control: Control{Without: "a root of its own", Jail: true},
		},
		{
			ID: "FS-25", Title: "devices: making nodes, opening the host's", Level: User, Severity: Escape, Source: "own",
			Expect: "no node can be made; only null, zero, full, random, urandom and the terminals exist",
			Attack: Payload{Code: `
attempt("block", lambda: os.mknod("b", 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
attempt("char", lambda: os.mknod("c", 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
for d in "mem kmem port kmsg kvm fuse loop-control net/tun vda sda vsock uinput autofs mapper/control".split():
    attempt(d, lambda: os.close(os.open("/dev/" + d, os.O_RDONLY | os.O_NONBLOCK)))
say("others", len(set(os.listdir("/dev")) - set("null zero full random urandom tty shm pts ptmx fd stdin stdout stderr".split())))
`},
			Doors:   append(doors("ENOENT|EPERM|EACCES", "block char mem kmsg kvm loop-control"), Door{"others", "0", ""}),
			Control: Control{Without: "nodev, a /dev of its own", Jail: true},
			Twin:    &Twin{What: "the ordinary devices", Payload: Payload{Language: "shell", Code: "head -c 4 /dev/urandom | wc -c; echo x > /dev/null; head -c 2 /dev/zero | wc -c; [ -e /dev/fd/0 ] && echo done"}, Want: "4\n2\ndone"},
		},
	}
}

// linkCode makes links to $1 and to where secrets lie.
const linkCode = `ln -s "$1" out.txt; ln -s /proc/self/environ env.txt; ln -s /etc dir`

const namesCode = `
for n in [b"a\nb", b"\x1b[31mred", b"\x1b]52;c;eA==\x07", "\u202egpj.exe".encode(), b"-rf", b"n" * 255, b"\xff\xfe", b"cr\rname", "\u0085next".encode()]:
    open(n, "w").close()
for n in [b"..\\x", b"a\x7fb"]:
    os.makedirs(n + b"\x1b/deep"); open(n + b"\x1b/deep/f", "w").close()
`

const suidCode = `
import shutil, subprocess
def euid(*cmd):
    r = subprocess.run(cmd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=5)
    return r.stdout.strip() or "refused"
drop = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"] if JAIL else []
if JAIL:
    shutil.copy("/usr/bin/id", "suid"); os.chmod("suid", 0o6755); os.chmod(".", 0o755)
say("mode", oct(os.stat("suid").st_mode & 0o7777)[2:])
say("euid", euid(*drop, "./suid", "-u"))
shutil.copy("/usr/bin/id", "made"); os.chmod("made", 0o6755)
say("made", euid(*drop, "./made", "-u"))
say("su", euid("su", "-c", "id -u"))
st = open("/proc/self/status").read()
say("nnp", st.split("NoNewPrivs:")[1].split()[0])
say("suid_mounts", sum("nosuid" not in l.split()[5].split(",") for l in open("/proc/self/mountinfo")))
`

const readOnlyCode = `
T = "/usr/bin/id"
attempt("write", lambda: os.close(os.open(T, os.O_WRONLY)))
attempt("truncate", lambda: os.truncate("/etc/hosts", 0))
attempt("chmod", lambda: os.chmod(T, 0o777))
attempt("chown", lambda: os.chown(T, 1000, 1000))
attempt("utime", lambda: os.utime(T, (1, 1)))
attempt("unlink", lambda: os.unlink("/etc/hostname"))
attempt("mkdir", lambda: os.mkdir("/usr/pinfold-was-here"))
attempt("symlink", lambda: os.symlink("/", "/usr/pinfold-link"))
attempt("link", lambda: os.link(T, "/usr/bin/id2"))
attempt("rename_out", lambda: os.rename("/usr/bin/id", "/usr/bin/id3"))
open("mine", "w").close()
attempt("rename_in", lambda: os.rename("/etc/shells", "/etc/shells2"))
attempt("tmpfile", lambda: os.close(os.open("/usr/bin", os.O_TMPFILE | os.O_RDWR)))
attempt("xattr", lambda: os.setxattr("/etc/passwd", "trusted.x" if JAIL else "user.x", b"1"))
`

const homeFilesCode = `
open("a", "w").write("x"); os.truncate("a", 0); os.chmod("a", 0o600); os.utime("a", (1, 1)); os.mkdir("d")
os.symlink("a", "l"); os.link("a", "b"); os.rename("a", "d/a"); os.close(os.open(".", os.O_TMPFILE | os.O_RDWR)); os.unlink("b")
open("/tmp/t", "w").close(); os.mkfifo("p"); say("all", "fine")
`

// openForWriting asks whether files can be opened for writing, and writes nothing.
func openForWriting(paths ...string) string {
	return fmt.Sprintf("for p in %q.split():\n    attempt(p, lambda: os.close(os.open(p, os.O_WRONLY)))\n", strings.Join(paths, " "))
}

func input(name string, mode uint32, content []byte) runs.Input {
	return runs.Input{Path: name, Mode: mode, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(content))), nil
	}}
}

// canary makes a file on the host that holds the secret.
func (a *arena) canary() string {
	name := filepath.Join(a.dir, "canary")
	if err := os.WriteFile(name, []byte(a.secret), 0o644); err != nil { //nolint:gosec // everybody may read it: only the sandbox must not
		a.Fatal(err)
	}
	return name
}

// hostShell runs a harmless script in an empty directory of the host, which it
// returns.
func (a *arena) hostShell(script string, args ...string) string {
	a.Helper()
	return a.hostCommand(append([]string{"/bin/sh", "-c", script, "sh"}, args...)...)
}

func (a *arena) hostPython(code string) string {
	a.Helper()
	return a.hostCommand("/usr/bin/python3", "-c", a.prelude+code)
}

func (a *arena) hostCommand(args ...string) string {
	a.Helper()
	dir := a.TempDir()
	cmd := exec.CommandContext(a.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		a.Fatalf("the control: %v: %s", err, out)
	}
	return dir
}

// leaks says whether content holds the secret: nil if it does.
func (a *arena) leaks(content []byte, err error) error {
	if err != nil || !strings.Contains(string(content), a.secret) {
		return fmt.Errorf("the secret did not come: %w", err)
	}
	return nil
}

// skipped checks that a file stayed inside for a reason.
func (t *trial) skipped(name, code string) error {
	if t.result == nil {
		return t.err
	}
	for _, s := range t.result.ArtifactsSkipped {
		if s.Path == name && s.Code == code {
			return nil
		}
	}
	return fmt.Errorf("%s is not skipped as %s: %+v", name, code, t.result.ArtifactsSkipped)
}

// cameOut checks which files came out.
func (t *trial) cameOut(n int, names ...string) error {
	if len(t.files) != n {
		return fmt.Errorf("%d files came out, not %d", len(t.files), n)
	}
	for _, name := range names {
		if _, ok := t.files[name]; !ok {
			return fmt.Errorf("%.40s did not come out", name)
		}
	}
	return nil
}

// blocksOnPipe shows that opening a pipe waits for its other end.
func blocksOnPipe(a *arena) error {
	dir := a.hostShell("mkfifo p.txt")
	pipe := filepath.Join(dir, "p.txt")
	opened := make(chan error, 1)
	go func() {
		f, err := os.Open(pipe)
		if err == nil {
			err = f.Close()
		}
		opened <- err
	}()
	select {
	case <-opened:
		return errors.New("the pipe opened at once")
	case <-time.After(200 * time.Millisecond):
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // lets the other go on
	if err != nil {
		return err
	}
	return errors.Join(w.Close(), <-opened)
}
