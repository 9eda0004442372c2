package cgroup

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests start this test binary again, inside a group, to do one thing.
const childEnv = "PINFOLD_CGROUP_CHILD"

var children = map[string]func(n int){
	"sleep":  func(int) {},
	"alloc":  allocate,
	"shmem":  fillShmem,
	"spin":   spin,
	"fork":   func(n int) { fmt.Println("forked", fork(n)) },
	"bomb":   bomb,
	"detect": func(int) { printDetected() },
}

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		name, arg, _ := strings.Cut(job, ":")
		n, _ := strconv.Atoi(arg)
		children[name](n)
		fmt.Println("ready")
		for name != "detect" {
			time.Sleep(time.Hour)
		}
		return
	}
	os.Exit(m.Run())
}

// held keeps what children allocate.
var held []byte

func allocate(mib int) {
	held = make([]byte, mib<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
}

func fillShmem(mib int) {
	fd, err := unix.MemfdCreate("test", 0)
	for range mib {
		if err == nil {
			_, err = unix.Write(fd, make([]byte, 1<<20))
		}
	}
	if err != nil {
		panic(err)
	}
}

func spin(ms int) {
	var ru unix.Rusage
	for ru.Utime.Nano()+ru.Stime.Nano() < int64(ms)*1e6 {
		_ = unix.Getrusage(unix.RUSAGE_SELF, &ru)
	}
}

// fork makes up to n processes that do nothing, until the kernel refuses.
func fork(n int) (made int) {
	for range n {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			break
		}
		for pid == 0 {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // for ever
		}
		made++
	}
	return made
}

// bomb forks for ever, in every process that it makes.
func bomb(int) {
	fmt.Println("ready")
	for {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	}
}

func printDetected() {
	h, err := Detect(Options{})
	if err != nil {
		panic(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]Support{"memory": h.Support(Memory), "pids": h.Support(Pids)})
}

// child is a process in a group.
type child struct {
	*exec.Cmd
	out *bufio.Reader
}

// start runs a job in the group and ends it with the test.
func start(t *testing.T, g *Group, job string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("Executable: %v", err)
	}
	cmd := exec.Command(exe)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	join, err := g.JoinFiles()
	if err != nil {
		t.Fatalf("JoinFiles: %v", err)
	}
	dir, err := g.OpenDir()
	if err != nil {
		t.Fatalf("OpenDir: %v", err)
	}
	if dir != nil {
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	} else {
		// Only a single-threaded process enters as a whole: not a Go program.
		script := ""
		for i := range join {
			script += fmt.Sprintf("echo 0 >&%d || exit 99; ", i+3)
		}
		cmd = exec.Command("/bin/sh", "-c", script+`exec "$0"`, exe)
		for _, fd := range join {
			cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), "tasks"))
		}
	}
	cmd.Env = []string{childEnv + "=" + job, "GOMAXPROCS=1"}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("StdoutPipe: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", job, err)
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &child{cmd, bufio.NewReader(out)}
}

// line reads one line of the child's output, "" at its end.
func (c *child) line(t *testing.T) string {
	t.Helper()
	s, _ := c.out.ReadString('\n')
	return strings.TrimSuffix(s, "\n")
}

// must says that this run may not skip.
func must() bool { return os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" }

// baseEnv says where the groups must be, when whoever runs the tests knows.
const baseEnv = "PINFOLD_TEST_CGROUP_BASE"

// hierarchy returns this host's, and removes the directories at the end.
func hierarchy(t testing.TB) *Hierarchy {
	t.Helper()
	h, err := Detect(Options{})
	if err != nil {
		t.Fatalf("Detect: %v", err)
	}
	for _, c := range []Controller{Memory, Pids, CPU, CPUAcct} {
		if s := h.Support(c); s.Answer != Yes {
			text := fmt.Sprintf("this test needs the %s controller: %s; %s", c, s.Because, s.Fix)
			if must() {
				t.Fatal(text)
			}
			t.Skip(text)
		}
	}
	if want := os.Getenv(baseEnv); want != "" && h.trees[0].root != want {
		t.Fatalf("groups would be in %s, not in %s", h.trees[0].root, want)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return h
}

var serial int

// group makes a group that is gone when the test ends.
func group(t testing.TB, h *Hierarchy, l Limits) *Group {
	t.Helper()
	serial++
	g, err := h.New(fmt.Sprintf("%s%d", testPrefix(), serial), l)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := g.Kill(context.Background()); err != nil {
			t.Errorf("Kill: %v", err)
		}
		if err := g.Remove(context.Background()); err != nil {
			t.Errorf("Remove: %v", err)
		}
		for _, dir := range g.Dirs() {
			if exists(dir) {
				t.Errorf("%s is left", dir)
			}
		}
	})
	return g
}

// testPrefix keeps our groups apart from those of others on this host.
func testPrefix() string { return fmt.Sprintf("cgtest-%d-", os.Getpid()) }

// file reads one of the group's control files.
func (g *Group) file(t *testing.T, c Controller, name string) string {
	t.Helper()
	text, err := g.read(c, name)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return strings.TrimSpace(string(text))
}
