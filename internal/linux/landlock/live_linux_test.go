package landlock

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A domain cannot be left again, so every restricted attempt is made by this
// binary started again with this word: LEVEL DIRECTORY ABSTRACT-SOCKET.
const wordTry = "landlock-try"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == wordTry {
		runtime.LockOSThread()
		level, err := strconv.Atoi(os.Args[2])
		if err == nil && level > 0 {
			err = restrict(level, os.Args[3])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		for _, a := range attempts {
			fmt.Printf("%s = %s\n", a.name, errorName(a.do(os.Args[3], os.Args[4])))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// restrict puts this thread into a domain: everything can be read and
// executed, DIR/rw can be written, and two devices and /proc have their uses.
func restrict(level int, dir string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	set, err := createRuleset(RulesetAttr(level))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for _, r := range []struct {
		path   string
		rights Access
	}{
		{"/", ReadExecute.Rights(level)},
		{dir + "/rw", Write.Rights(level)},
		{"/proc", Proc.Rights(level)},
		{"/dev/null", Devices.FileRights(level)},
		{"/dev/ptmx", Devices.FileRights(level)},
	} {
		fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := addRule(set, PathBeneathAttr(r.rights, fd)); err != nil {
			return fmt.Errorf("rule for %s: %w", r.path, err)
		}
		unix.Close(fd)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), RestrictFlags(level), 0); e != 0 {
		return fmt.Errorf("restrict: %w", e)
	}
	return unix.Close(set)
}

// moveInside fails at level 1, which is why MinLevel is 2.
const moveInside = "move between directories inside"

// attempts are made in this order. Without a domain each must succeed; within
// one, those with a since fail with an error from that level on.
var attempts = []struct {
	name   string
	since  int // the lowest level that refuses it; 0: never
	answer string
	do     func(dir, abstract string) error
}{
	{"write inside", 0, "", func(dir, _ string) error { return os.WriteFile(dir+"/rw/new", []byte("x"), 0o600) }},
	{"write outside", 1, "EACCES", func(dir, _ string) error { return touch(dir+"/ro/file", unix.O_WRONLY) }},
	{"create outside", 1, "EACCES", func(dir, _ string) error { return touch(dir+"/ro/new", unix.O_WRONLY|unix.O_CREAT) }},
	{"read outside", 0, "", func(dir, _ string) error { return touch(dir+"/ro/file", unix.O_RDONLY) }},
	{"execute outside", 0, "", func(string, string) error { return exec.Command("/bin/true").Run() }},
	{"list outside", 0, "", func(dir, _ string) error { _, err := os.ReadDir(dir + "/ro"); return err }},
	{"make a directory outside", 1, "EACCES", func(dir, _ string) error { return unix.Mkdir(dir+"/ro/d", 0o700) }},
	{"remove outside", 1, "EACCES", func(dir, _ string) error { return unix.Unlink(dir + "/ro/victim") }},
	{"make a device inside", 1, "EACCES", func(dir, _ string) error { return unix.Mknod(dir+"/rw/null", unix.S_IFCHR, 0x103) }},
	{"make a pipe inside", 0, "", func(dir, _ string) error { return unix.Mkfifo(dir+"/rw/fifo", 0o600) }},
	{"make a socket inside", 0, "", func(dir, _ string) error { return named(dir + "/rw/socket") }},
	{"link inside", 0, "", func(dir, _ string) error { return unix.Symlink("/", dir+"/rw/link") }},
	{"truncate inside", 0, "", func(dir, _ string) error { return unix.Truncate(dir+"/rw/new", 0) }},
	{"truncate outside", 3, "EACCES", func(dir, _ string) error { return unix.Truncate(dir+"/ro/file", 0) }},
	{"move out", 1, "EACCES", func(dir, _ string) error { return unix.Rename(dir+"/rw/link", dir+"/ro/moved") }},
	{moveInside, 0, "", func(dir, _ string) error {
		return errors.Join(unix.Mkdir(dir+"/rw/d", 0o700), unix.Rename(dir+"/rw/new", dir+"/rw/d/new"))
	}},
	{"link in", 1, "EXDEV", func(dir, _ string) error { return unix.Link(dir+"/ro/file", dir+"/rw/hard") }},
	{"ioctl on a device in use", 0, "", func(string, string) error { return deviceIoctl("/dev/ptmx", unix.TIOCGPTN) }},
	{"ioctl on another device", 5, "EACCES", func(string, string) error { return deviceIoctl("/dev/urandom", 0x80045200) }}, // RNDGETENTCNT
	{"write /dev/null", 0, "", func(string, string) error { return touch("/dev/null", unix.O_WRONLY|unix.O_TRUNC) }},
	{"write in /proc", 0, "", func(string, string) error { return os.WriteFile("/proc/thread-self/comm", []byte("x"), 0) }},
	{"abstract socket outside", 6, "EPERM", func(_, abstract string) error { return dial("unix", abstract) }},
	{"abstract socket inside", 0, "", func(_, abstract string) error { return serve("unix", abstract+"-inside") }},
	{"signal outside", 6, "EPERM", func(string, string) error { return unix.Kill(unix.Getppid(), 0) }},
	{"signal inside", 0, "", func(string, string) error { return unix.Kill(unix.Getpid(), 0) }},
	{"server on the loopback", 0, "", func(string, string) error { return serve("tcp", "127.0.0.1:0") }},
}

// TestLevels makes the attempts without a domain, which is the positive
// control, and then at every level that this kernel can enforce.
func TestLevels(t *testing.T) {
	best, errata, err := ABI()
	if err != nil {
		t.Fatalf("every kernel that we support has Landlock: %v", err)
	}
	t.Logf("level %d, errata %#x", best, errata)
	control := try(t, 0)
	for _, a := range attempts {
		if os.Geteuid() != 0 && control[a.name] == "EPERM" {
			continue // it takes root; the run as root has the proof
		}
		if a.since > 0 && a.since <= best && control[a.name] != "ok" {
			t.Errorf("%s without Landlock: %s: no proof", a.name, control[a.name])
		}
	}
	for level := 1; level <= min(best, MaxLevel); level++ {
		got := try(t, level)
		for _, a := range attempts {
			want := "ok"
			if a.since > 0 && level >= a.since {
				want = a.answer
			}
			if level < MinLevel && a.name == moveInside {
				want = "EXDEV"
			}
			if got[a.name] != want {
				t.Errorf("level %d: %s: %s, want %s", level, a.name, got[a.name], want)
			}
		}
	}
}

// try makes the attempts in a child at a level, 0 for no domain.
func try(t *testing.T, level int) map[string]string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"ro", "rw"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"ro/file", "ro/victim"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	abstract := fmt.Sprintf("@pinfold-landlock-%d-%d", os.Getpid(), level)
	l, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(self, wordTry, strconv.Itoa(level), dir, abstract)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Fatalf("level %d: %v: %s", level, err, stderr.String())
	}
	out := map[string]string{}
	for line := range strings.Lines(stdout.String()) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), " = ")
		out[name] = answer
	}
	if len(out) != len(attempts) {
		t.Fatalf("level %d: %d answers, want %d", level, len(out), len(attempts))
	}
	return out
}

func TestConstantsAreTheKernels(t *testing.T) {
	for _, c := range []struct {
		ours   Access
		theirs uint64
	}{
		{execute, unix.LANDLOCK_ACCESS_FS_EXECUTE},
		{writeFile, unix.LANDLOCK_ACCESS_FS_WRITE_FILE},
		{readFile, unix.LANDLOCK_ACCESS_FS_READ_FILE},
		{readDir, unix.LANDLOCK_ACCESS_FS_READ_DIR},
		{removeDir, unix.LANDLOCK_ACCESS_FS_REMOVE_DIR},
		{removeFile, unix.LANDLOCK_ACCESS_FS_REMOVE_FILE},
		{makeChar, unix.LANDLOCK_ACCESS_FS_MAKE_CHAR},
		{makeDir, unix.LANDLOCK_ACCESS_FS_MAKE_DIR},
		{makeReg, unix.LANDLOCK_ACCESS_FS_MAKE_REG},
		{makeSock, unix.LANDLOCK_ACCESS_FS_MAKE_SOCK},
		{makeFIFO, unix.LANDLOCK_ACCESS_FS_MAKE_FIFO},
		{makeBlock, unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK},
		{makeSym, unix.LANDLOCK_ACCESS_FS_MAKE_SYM},
		{refer, unix.LANDLOCK_ACCESS_FS_REFER},
		{truncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{ioctlDev, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{resolveUnix, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
		{Access(scopeAbstractUnix), unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET},
		{Access(scopeSignal), unix.LANDLOCK_SCOPE_SIGNAL},
		{logSameExecOff, unix.LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF},
		{logSubdomainsOff, unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF},
		{RulePathBeneath, unix.LANDLOCK_RULE_PATH_BENEATH},
	} {
		if uint64(c.ours) != c.theirs {
			t.Errorf("%#x, the kernel has %#x", c.ours, c.theirs)
		}
	}
}

func errorName(err error) string {
	var e syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return unix.ErrnoName(e)
	}
	return err.Error()
}

func touch(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func deviceIoctl(path string, request uint) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.IoctlGetInt(fd, request)
	return err
}

// The domain is this thread's alone, so sockets are made by raw calls here and
// not by the runtime, which may use other threads for them.
func named(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}

func dial(_, abstract string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: abstract})
}

// serve listens and connects to itself.
func serve(network, address string) error {
	family, addr := unix.AF_UNIX, unix.Sockaddr(&unix.SockaddrUnix{Name: address})
	if network == "tcp" {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	}
	server, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(server)
	if err := errors.Join(unix.Bind(server, addr), unix.Listen(server, 1)); err != nil {
		return err
	}
	bound, err := unix.Getsockname(server)
	if err != nil {
		return err
	}
	client, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	return unix.Connect(client, bound)
}
