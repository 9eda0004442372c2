//go:build linux

package spawn_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"weak"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

func run(t testing.TB, p *spawn.Program, c spawn.Clone) unix.WaitStatus {
	t.Helper()
	child, err := p.Start(c)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := child.WaitExec(); err != nil {
		t.Fatalf("WaitExec: %v", err)
	}
	return wait(t, child)
}

func wait(t testing.TB, child *spawn.Child) unix.WaitStatus {
	t.Helper()
	ws := unix.WaitStatus(child.Wait())
	child.Release()
	return ws
}

// bothWays tries with a copy of all our descriptors and with one of the low ones.
func bothWays(t *testing.T, try func(*testing.T, spawn.Clone)) {
	t.Helper()
	for _, c := range []spawn.Clone{{}, {CopyLow: true}} {
		t.Run(fmt.Sprintf("CopyLow=%v", c.CopyLow), func(t *testing.T) { try(t, c) })
	}
}

func TestExitStatus(t *testing.T) {
	p := spawn.New()
	p.UnblockSignals()
	p.Exec("/bin/sh", []string{"sh", "-c", "exit $CODE"}, []string{"CODE=7"})
	if ws := run(t, p, spawn.Clone{}); ws.ExitStatus() != 7 {
		t.Fatalf("exit status %d, want 7", ws.ExitStatus())
	}
}

func TestFailedStepIsNamed(t *testing.T) { bothWays(t, failedStepIsNamed) }

func failedStepIsNamed(t *testing.T, c spawn.Clone) {
	for _, test := range []struct {
		name  string
		build func(p *spawn.Program)
		step  string
		errno unix.Errno
	}{
		{"first", func(p *spawn.Program) { p.Chdir("/does/not/exist") }, "change directory", unix.ENOENT},
		{"exec", func(*spawn.Program) {}, "exec", unix.ENOENT},
		{"positive", func(p *spawn.Program) {
			p.Positive("read byte", unix.SYS_READ, 0, make([]byte, 1), 0)
		}, "read byte", unix.EPIPE},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := spawn.New()
			test.build(p)
			p.Exec("/does/not/exist", []string{"x"}, nil)
			child, err := p.Start(c)
			if err != nil {
				t.Fatal(err)
			}
			var step *spawn.StepError
			if err := child.WaitExec(); !errors.As(err, &step) || step.Step != test.step || step.Errno != test.errno {
				t.Fatalf("got %v, want step %q with %v", err, test.step, test.errno)
			}
		})
	}
}

func TestOptionalStepMayFail(t *testing.T) {
	p := spawn.New()
	p.Optional("chdir", unix.SYS_CHDIR, "/does/not/exist")
	p.Exec("/bin/true", []string{"true"}, nil)
	if ws := run(t, p, spawn.Clone{}); ws.ExitStatus() != 0 {
		t.Fatalf("exit status %d", ws.ExitStatus())
	}
}

// A result is an argument of a later step, also from inside a structure.
func TestCells(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := spawn.New(int(w.Fd()))
	pid := p.Result("getpid", unix.SYS_GETPID)
	p.Call("set group of self", unix.SYS_SETPGID, pid.Ref(), pid.Ref())
	buf := make([]byte, 16)
	p.Call("getpid into buffer", unix.SYS_GETPID)
	p.SaveTo(p.CellAt(buf, 8))
	p.Call("write", unix.SYS_WRITE, int(w.Fd()), buf, 16)
	p.UnblockSignals()
	p.Exec("/bin/true", []string{"true"}, nil)
	child, err := p.Start(spawn.Clone{})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := child.WaitExec(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := byte(child.PID); len(got) != 16 || got[8] != want || got[9] != byte(child.PID>>8) {
		t.Fatalf("got % x, want pid %d at 8", got, child.PID)
	}
	wait(t, child)
}

func TestDescriptorsAreClosed(t *testing.T) { bothWays(t, descriptorsAreClosed) }

func descriptorsAreClosed(t *testing.T, c spawn.Clone) {
	secret, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if _, err := unix.FcntlInt(secret.Fd(), unix.F_SETFD, 0); err != nil { // without close-on-exec
		t.Fatal(err)
	}
	list := func(keep ...int) string {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p := spawn.New(append(keep, int(w.Fd()))...)
		p.Dup2(int(w.Fd()), 1)
		p.UnblockSignals()
		p.Exec("/bin/ls", []string{"ls", "/proc/self/fd"}, nil)
		child, err := p.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := child.WaitExec(); err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(r)
		wait(t, child)
		return " " + strings.Join(strings.Fields(string(out)), " ") + " "
	}
	number := " " + strconv.Itoa(int(secret.Fd())) + " "
	if out := list(1, int(secret.Fd())); !strings.Contains(out, number) {
		t.Fatalf("control: a kept descriptor %s is not in %s", number, out)
	}
	// ls itself opens the directory as the lowest free descriptor, 3.
	r, w, _ := os.Pipe()
	defer r.Close()
	defer w.Close()
	p := spawn.New(int(w.Fd()))
	p.CloseOnExecFrom(3)
	p.Exec("/bin/sh", []string{"sh", "-c", "test ! -e /proc/self/fd/" + strings.TrimSpace(number) + " && test ! -e /proc/self/fd/" + strconv.Itoa(int(w.Fd()))}, nil)
	if ws := run(t, p, c); ws.ExitStatus() != 0 {
		t.Fatal("a descriptor that was not asked for is open after the exec")
	}
}

func TestKilledBeforeExec(t *testing.T) { bothWays(t, killedBeforeExec) }

func killedBeforeExec(t *testing.T, c spawn.Clone) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := spawn.New(int(r.Fd()))
	p.Positive("wait for go", unix.SYS_READ, int(r.Fd()), make([]byte, 1), 1)
	p.Exec("/bin/true", []string{"true"}, nil)
	child, err := p.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.WaitExec(); !errors.Is(err, spawn.ErrKilled) {
		t.Fatalf("got %v, want ErrKilled", err)
	}
}

// Many at once, from many goroutines, while others allocate: the children share
// our memory and must not disturb it.
func TestManyAtOnce(t *testing.T) { bothWays(t, manyAtOnce) }

func manyAtOnce(t *testing.T, c spawn.Clone) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = make([]byte, 1<<16)
			}
		}
	}()
	defer close(stop)
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				p := spawn.New()
				p.Setsid()
				p.Rlimit(unix.RLIMIT_CORE, 0)
				p.UnblockSignals()
				p.Exec("/bin/sh", []string{"sh", "-c", "exit " + strconv.Itoa(i)}, nil)
				if ws := run(t, p, c); ws.ExitStatus() != i {
					t.Errorf("exit status %d, want %d", ws.ExitStatus(), i)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A child that begins with our own table of descriptors closes none of ours, and
// takes with it none above those that it keeps.
func TestCopyLowLeavesOurs(t *testing.T) {
	high := make([]int, 300)
	for i := range high {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD, 1000) // without close-on-exec
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		high[i] = fd
	}
	p := spawn.New()
	p.Exec("/bin/sh", []string{"sh", "-c", "for f in /proc/self/fd/*; do test ${f##*/} -lt 1000 || exit 1; done"}, nil)
	if ws := run(t, p, spawn.Clone{CopyLow: true}); ws.ExitStatus() != 0 {
		t.Errorf("exit status %d: a descriptor that was not asked for is open after the exec", ws.ExitStatus())
	}
	for _, fd := range high {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Fatalf("our descriptor %d: %v", fd, err)
		}
	}
}

func BenchmarkTrue(b *testing.B) {
	for b.Loop() {
		p := spawn.New()
		p.UnblockSignals()
		p.Exec("/bin/true", []string{"true"}, nil)
		run(b, p, spawn.Clone{})
	}
}

func BenchmarkTrueOsExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNamespaces(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	for b.Loop() {
		p := spawn.New()
		p.UnblockSignals()
		p.Exec("/bin/true", []string{"true"}, nil)
		run(b, p, spawn.Clone{Flags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET})
	}
}

// A child that lives holds nothing of the table that it walked.
func TestChildrenLetGoOfTheirPrograms(t *testing.T) {
	p := spawn.New()
	p.Exec("/bin/sleep", []string{"sleep", "1000"}, nil)
	table := weak.Make(p)
	child, err := p.Start(spawn.Clone{})
	if err != nil {
		t.Fatal(err)
	}
	if err := child.WaitExec(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Kill()
		wait(t, child)
	}()
	runtime.GC()
	if table.Value() != nil {
		t.Error("the table is still there")
	}
}

// A child that rests costs no descriptor, is still killed by whoever says so, and its
// status is collected once it does not rest any more; however often and whenever.
func TestRest(t *testing.T) {
	p := spawn.New()
	p.Exec("/bin/sleep", []string{"sleep", "1000"}, nil)
	child, err := p.Start(spawn.Clone{})
	if err != nil {
		t.Fatal(err)
	}
	if err := child.WaitExec(); err != nil {
		t.Fatal(err)
	}
	child.Rest() // nobody waits yet: nothing to save
	ended := make(chan unix.WaitStatus, 1)
	go func() { ended <- unix.WaitStatus(child.Wait()) }()
	var stop sync.WaitGroup
	for range 4 {
		stop.Go(func() {
			for range 200 {
				child.Rest()
				child.Wake()
			}
		})
	}
	stop.Wait()
	for rested := 0; rested < 1000; { // also when Wait has not come to its descriptor yet
		child.Wake()
		if child.Rest(); child.Pidfd < 0 {
			rested++
		} else if rested > 0 {
			t.Fatal("a child that Wait waits for does not rest")
		}
	}
	if err := unix.Kill(child.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case status := <-ended:
		t.Fatalf("collected at rest: %v", status)
	default:
	}
	child.StayAwake()
	child.Rest() // no more
	if status := <-ended; !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Errorf("status %v", status)
	}
	child.Rest() // its number may be another's
	if err := child.Kill(); err != nil {
		t.Error(err)
	}
	child.Release()
	child.Wake()
}
