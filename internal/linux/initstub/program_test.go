//go:build linux

package initstub_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/initstub"
)

// The file is small, and has one part that is executed and none that is written to
// and executed.
func TestFile(t *testing.T) {
	b := initstub.Program()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 640 || f.Type != elf.ET_DYN || len(f.Progs) != 2 || f.Entry >= uint64(len(b)) {
		t.Errorf("%d bytes, %+v", len(b), f.FileHeader)
	}
	for _, p := range f.Progs {
		want := map[elf.ProgType]elf.ProgFlag{elf.PT_LOAD: elf.PF_R | elf.PF_X, elf.PT_GNU_STACK: elf.PF_R | elf.PF_W}[p.Type]
		if p.Flags != want || p.Filesz != p.Memsz {
			t.Errorf("%+v", p.ProgHeader)
		}
	}
}

// What the program does about each byte, as long as it is not process 1 of
// anything; package native's tests see the rest.
func TestBytes(t *testing.T) {
	for _, test := range []struct {
		name, says string
		exit       int
		out        string // what the agent sends, which is a shell here
	}{
		{"nothing", "", 0, ""},
		{"become the agent, and what belongs to the agent", "wrest", 0, "rest pinfold-agent A=1 closed"},
		{"no known byte", "x", 127, ""},
		{"zero", "\x00", 127, ""},
		{"kill the guest, beside others", "e", 127, ""}, // it would be everybody of the host
	} {
		t.Run(test.name, func(t *testing.T) {
			out, exit := talk(t, test.says, "/bin/sh")
			if exit != test.exit || out != test.out {
				t.Errorf("exit status %d after %q, not %d after %q", exit, out, test.exit, test.out)
			}
		})
	}
	t.Run("an agent that cannot be executed", func(t *testing.T) {
		if out, exit := talk(t, "w", "/etc/passwd"); exit != 127 || out != "" {
			t.Errorf("exit status %d after %q", exit, out)
		}
	})
}

// shell is what the agent does here: it says what it has read, its own name, a
// variable, and whether its own file is closed.
const shell = `read -r line <&3; test -e /proc/self/fd/4 || closed=closed; echo -n $line $0 A=$A $closed >&3`

// talk runs the program, says something to it, and returns what comes back.
func talk(t *testing.T, says, agent string) (out string, exit int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "initstub")
	if err := os.WriteFile(program, initstub.Program(), 0o700); err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	file, err := os.Open(agent)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(program)
	cmd.Args = []string{"pinfold-agent"} // exactly one
	cmd.Env = []string{"A=1"}
	cmd.Stdin = strings.NewReader(shell)
	cmd.ExtraFiles = []*os.File{theirs, file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if _, err := io.WriteString(ours, says); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(int(ours.Fd()), unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	var status *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// Nobody can look into the program, not even its own user.
func TestUndumpable(t *testing.T) {
	stub, sh := lie(t, initstub.Program()), lie(t, nil)
	for until := time.Now().Add(time.Minute); owner(t, stub) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("its files are its user's")
		}
	}
	if owner(t, sh) == 0 {
		t.Fatal("control: another program's files are root's")
	}
}

// lie starts a program (nil: a shell) that waits, not as root. It returns when the
// kernel has said whose the new program's files in /proc are: until then they are root's.
func lie(t *testing.T, program []byte) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh")
	if program != nil {
		fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "program")
		defer f.Close()
		if _, err := f.Write(program); err != nil {
			t.Fatal(err)
		}
		read, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close() // or else it could not be executed
		cmd = exec.Command("/proc/self/fd/5")
		defer read.Close()
		cmd.ExtraFiles = []*os.File{nil, nil, read}
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	cmd.Stdin = ours
	if program != nil {
		cmd.ExtraFiles[0] = ours
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // it ends with its input
		_ = theirs.Close()
		_ = cmd.Wait()
	})
	// Start returns in the midst of exec, which names the process after that.
	for until, ours := time.Now().Add(time.Minute), comm(t, os.Getpid()); comm(t, cmd.Process.Pid) == ours; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the program does not begin")
		}
	}
	return cmd
}

// comm is a process's name.
func comm(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// owner is whose the files of a process in /proc are.
func owner(t *testing.T, cmd *exec.Cmd) uint32 {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}
