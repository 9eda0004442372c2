package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pinfold/sandbox"
)

// A filter cannot be taken off again, so every test of a live filter runs in a
// process of its own: this binary, started again with one of these words.
const (
	wordApply = "seccomp-apply" // MODE PROGRAM ARGS…: put the filter on, then execute
	wordTry   = "seccomp-try"   // ATTEMPT…: make system calls and print what came back
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case wordApply:
			fmt.Fprintln(os.Stderr, "apply:", apply(mode(os.Args[2]), os.Args[3:]))
			os.Exit(99)
		case wordTry:
			try(os.Args[2:])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// mode is what a child runs under.
type mode string

const (
	bare  mode = "bare"  // no filter: the positive control
	plain mode = "plain" // the filter without a listener
	heard mode = "heard" // the filter with a listener
)

// outcome is what became of a child.
type outcome struct {
	stdout, stderr string
	status         syscall.WaitStatus
	denied         []sandbox.DeniedSyscall
	killed         string
}

func (o outcome) deniedNames() []string {
	names := []string{}
	for _, d := range o.denied {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// apply replaces the process with another program under the filter. A listener
// goes to the parent over descriptor 3.
func apply(m mode, argv []string) error {
	runtime.LockOSThread() // the filter belongs to this thread, which execs
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if m != bare {
		p, err := Compile(Options{Listener: m == heard})
		if err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		fprog := p.Fprog()
		fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, SetModeFilter, Probe().InstallFlags(m == heard), fprog.Address())
		runtime.KeepAlive(fprog)
		if e != 0 {
			return fmt.Errorf("installing the filter: %w", e)
		}
		if m == heard {
			if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
				return fmt.Errorf("sending the listener: %w", err)
			}
			unix.Close(int(fd))
		}
	}
	unix.CloseOnExec(3)
	return syscall.Exec(path, argv, os.Environ())
}

// run starts a program under a mode and waits for it.
func run(t *testing.T, m mode, dir string, argv ...string) outcome {
	t.Helper()
	return runWith(t, m, dir, (*Listener).Serve, argv...)
}

// runWith leaves the listener to serve, which has to end with the program.
func runWith(t *testing.T, m mode, dir string, serve func(*Listener) error, argv ...string) outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(self, append([]string{wordApply, string(m)}, argv...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	ours, theirs := socketPair(t)
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	timer := time.AfterFunc(2*time.Minute, func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer timer.Stop()

	var o outcome
	if m == heard {
		l := receiveListener(t, ours)
		served := make(chan error, 1)
		go func() { served <- serve(l) }()
		defer l.Close()
		err = cmd.Wait()
		select {
		case e := <-served:
			if e != nil {
				t.Fatalf("Serve: %v", e)
			}
		case <-time.After(time.Minute):
			unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			t.Fatalf("Serve goes on: a process was left running, or the end was not noticed")
		}
		o.denied, o.killed = l.Denied(), l.Killed()
	} else {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o.stdout, o.stderr = stdout.String(), stderr.String()
	o.status = cmd.ProcessState.Sys().(syscall.WaitStatus)
	if o.status.ExitStatus() == 99 {
		t.Fatalf("the helper failed: %s", o.stderr)
	}
	return o
}

func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

func receiveListener(t *testing.T, from *os.File) *Listener {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("no listener arrived: %v, %d messages", err, len(messages))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("no listener arrived: %v, %v", err, fds)
	}
	l, err := NewListener(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// attempts runs attempts in one child and returns what each printed.
func attempts(t *testing.T, m mode, list ...string) (map[string]string, outcome) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, m, t.TempDir(), append([]string{self, wordTry}, list...)...)
	out := map[string]string{}
	for line := range strings.Lines(o.stdout) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			out[key] = value
		}
	}
	return out, o
}
