package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func TestProcesses(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 40_000)
	eachMode(t, func(t *testing.T, l *live) {
		for _, test := range []struct {
			name, script, stdin string
			want                ran
		}{
			{"echo", "echo hello", "", ran{Stdout: "hello\n"}},
			{"both streams", "echo out; echo err >&2", "", ran{Stdout: "out\n", Stderr: "err\n"}},
			{"exit code", "exit 41", "", ran{Code: 41}},
			{"own signal", "kill -SEGV $$", "", ran{Signal: syscall.SIGSEGV}},
			{"default signals", "kill -TERM $$; echo alive", "", ran{Signal: syscall.SIGTERM}},
			{"broken pipe", "yes | head -n 1", "", ran{Stdout: "y\n"}},
			{"stdin", "cat", big, ran{Stdout: big}},
			{"no stdin", "cat; echo done", "", ran{Stdout: "done\n"}},
			{"stdin closed by the program", "exec <&-; sleep 0.1; echo ok", big, ran{Stdout: "ok\n"}},
			{"stdin never read", "true", big, ran{}},
			{"stdout closed by the program", "exec >&-; sleep 0.05; exit 3", "", ran{Code: 3}},
			{"grandchild holds stdout", "setsid sleep 300 & echo main", "", ran{Stdout: "main\n", Held: true}},
			{"grandchild that ends in time", "(sleep 0.05; echo late) & echo main", "", ran{Stdout: "main\nlate\n"}},
			{"orphans", "for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 &) ; done; exit 5", "", ran{Code: 5}},
			{"not UTF-8", `printf '\377\000x'`, "", ran{Stdout: "\xff\x00x"}},
			{"working directory", `test "$PWD" = "$(pwd -P)" && echo yes`, "", ran{Stdout: "yes\n"}},
			{"environment", "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort", "", ran{Stdout: "LANG=C.UTF-8\nPATH=/usr/bin:/bin\n"}},
			{"descriptors", `(sleep 0.2; ls -l /proc/$$/fd) | grep -c ' -> '`, "", ran{Stdout: "3\n"}},
		} {
			t.Run(test.name, func(t *testing.T) {
				if test.name == "descriptors" && l.pid1 {
					test.want.Stdout = "" // the host's /proc does not know the sandbox's pids
					test.script = "true"
				}
				diff := cmp.Diff(test.want, l.sh(t, test.script, test.stdin))
				for tries := 1; diff != "" && test.name == "grandchild that ends in time" && tries < 20; tries++ {
					diff = cmp.Diff(test.want, l.sh(t, test.script, test.stdin)) // a busy machine did not let it
				}
				if diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			})
		}
	})
}

func TestIdentity(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		uid, groups := strconv.Itoa(os.Getuid()), ""
		if l.change {
			uid, groups = "1000", " 1000"
		}
		got := l.sh(t, `id -u; test -z "$1" || id -G; ulimit -n; cat /proc/self/status | grep -E '^(CapBnd|CapEff|SigBlk|SigIgn)'`, "")
		lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
		if lines[0] != uid {
			t.Fatalf("runs as %s, want %s", lines[0], uid)
		}
		for _, want := range []string{"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"} {
			if !strings.Contains(got.Stdout, want) {
				t.Errorf("no %q in:\n%s", want, got.Stdout)
			}
		}
		if groups != "" {
			for _, want := range []string{"CapBnd:\t0000000000000000", "CapEff:\t0000000000000000"} {
				if !strings.Contains(got.Stdout, want) {
					t.Errorf("no %q in:\n%s", want, got.Stdout)
				}
			}
			if g := l.sh(t, "id -G", "").Stdout; g != "1000\n" {
				t.Errorf("groups %q", g)
			}
		}
	})
}

func TestRlimits(t *testing.T) {
	l := startAgent(t, mode{})
	var out bytes.Buffer
	p, err := l.Start(deadline(t), guest.Command{
		Args: []string{"sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c"}, Env: env,
		Rlimits: []wire.Rlimit{{Resource: syscall.RLIMIT_NOFILE, Value: 77}, {Resource: syscall.RLIMIT_CORE, Value: 0}},
	}, guest.Streams{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if out.String() != "77\n77\n0\n" {
		t.Fatalf("limits %q", out.String())
	}
}

func TestStartRefusals(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		write := func(name, content string, mode os.FileMode) {
			if err := l.WriteFile(deadline(t), name, uint32(mode), int64(len(content)), strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
		write("noexec", "#!/bin/sh\n", 0o644)
		write("orphan", "#!/no/such/interpreter\n", 0o755)
		write("garbage", "\x00\x01\x02 not a program", 0o755)
		write("empty", "", 0o755)
		for _, test := range []struct {
			name string
			cmd  guest.Command
			code string
			text string
		}{
			{"missing", guest.Command{Args: []string{"no-such-program"}, Env: env}, sandbox.CodeCommandNotFound, "no-such-program"},
			{"missing path", guest.Command{Args: []string{"./nope"}, Env: env}, sandbox.CodeCommandNotFound, "./nope"},
			{"empty name", guest.Command{Args: []string{""}, Env: env}, sandbox.CodeCommandNotFound, "empty"},
			{"no command", guest.Command{Env: env}, sandbox.CodeSpecInvalid, "no command"},
			{"directory", guest.Command{Args: []string{"/usr"}, Env: env}, sandbox.CodeCommandNotRunnable, "directory"},
			{"no execute bit", guest.Command{Args: []string{"./noexec"}, Env: env}, sandbox.CodeCommandNotRunnable, "permission"},
			{"no interpreter", guest.Command{Args: []string{"./orphan"}, Env: env}, sandbox.CodeCommandNotRunnable, "interpreter"},
			{"garbage", guest.Command{Args: []string{"./garbage"}, Env: env}, sandbox.CodeCommandNotRunnable, "not a program"},
			{"empty file", guest.Command{Args: []string{"./empty"}, Env: env}, sandbox.CodeCommandNotRunnable, "not a program"},
			{"NUL", guest.Command{Args: []string{"sh", "a\x00b"}, Env: env}, sandbox.CodeSpecInvalid, "NUL"},
			{"not UTF-8", guest.Command{Args: []string{"sh", "\xff"}, Env: env}, sandbox.CodeSpecInvalid, "UTF-8"},
			{"no directory", guest.Command{Args: []string{"true"}, Env: env, Dir: "/no/such"}, sandbox.CodeFileNotFound, "dir: /no/such: "},
			{"proc", guest.Command{Args: []string{"true"}, Env: env, Dir: "/proc/self/cwd"}, sandbox.CodeNotRegularFile, "dir: /proc/self/cwd: "},
			{"proc itself", guest.Command{Args: []string{"true"}, Env: env, Dir: "/proc"}, sandbox.CodePathInvalid, "dir: /proc: "},
			{"huge arguments", guest.Command{Args: []string{"true", strings.Repeat("x", 200_000)}, Env: env}, sandbox.CodeTooLarge, "too large"},
			{"absurd arguments", guest.Command{Args: []string{"true", strings.Repeat("x", 5<<20)}, Env: env}, sandbox.CodeTooLarge, "bytes"},
		} {
			t.Run(test.name, func(t *testing.T) {
				_, err := l.Start(deadline(t), test.cmd, guest.Streams{})
				if code(err) != test.code || !strings.Contains(err.Error(), test.text) {
					t.Fatalf("Start: %v (code %s), want code %s and %q", err, code(err), test.code, test.text)
				}
			})
		}
		if got := l.sh(t, "echo still here", "").Stdout; got != "still here\n" {
			t.Fatalf("after the refusals: %q", got)
		}
	})
}

func TestManyArguments(t *testing.T) {
	l := startAgent(t, mode{})
	args := []string{"sh", "-c", `echo "$#"`, "sh"}
	for range 10_000 {
		args = append(args, strings.Repeat("<", 60))
	}
	var out bytes.Buffer
	p, err := l.Start(deadline(t), guest.Command{Args: args, Env: env}, guest.Streams{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(deadline(t)); err != nil || out.String() != "10000\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}

func TestSignals(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		for _, test := range []struct {
			name   string
			script string
			group  bool
			want   ran
		}{
			{"process", "echo ready; exec sleep 60", false, ran{Stdout: "ready\n", Signal: syscall.SIGTERM}},
			{"group", "sleep 60 & echo ready; wait", true, ran{Stdout: "ready\n", Signal: syscall.SIGTERM}},
			{"handled", "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.02; done", false, ran{Stdout: "ready\ncaught\n", Code: 9}},
		} {
			t.Run(test.name, func(t *testing.T) {
				out := &notify{want: "ready\n", seen: make(chan struct{})}
				p, err := l.Start(deadline(t), guest.Command{Args: []string{"bash", "-c", test.script}, Env: env}, guest.Streams{Stdout: out})
				if err != nil {
					t.Fatal(err)
				}
				<-out.seen
				if err := p.Signal(syscall.SIGTERM, test.group); err != nil {
					t.Fatal(err)
				}
				exit, err := p.Wait(deadline(t))
				if err != nil {
					t.Fatal(err)
				}
				got := ran{Stdout: out.buf.String(), Code: exit.Code, Signal: exit.Signal, Held: p.PipesHeld()}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
				if err := p.Signal(syscall.SIGKILL, true); err != nil {
					t.Fatalf("Signal after the end: %v", err)
				}
			})
		}
	})
}

// notify collects what is written and tells when it starts as wanted.
type notify struct {
	buf  bytes.Buffer
	want string
	seen chan struct{}
	done bool
}

func (n *notify) Write(p []byte) (int, error) {
	n.buf.Write(p)
	if !n.done && strings.HasPrefix(n.buf.String(), n.want) {
		n.done = true
		close(n.seen)
	}
	return len(p), nil
}

// A guest must not be able to end the agent by signals that it may send. They
// come in a storm, so that some arrive while others are being handled.
func TestAgentSurvivesSignals(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		if !l.pid1 {
			return // beside a process of the same user nothing is safe
		}
		storm := `i=0; while [ $i -lt 50 ]; do i=$((i+1)); kill -23 1; for s in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 19 20 23 24 25 26 27 29 30 31 34 64
			do kill -$s 1; done; done 2>/dev/null`
		l.sh(t, "("+storm+")& ("+storm+")& "+storm+"; wait", "")
		if got := l.sh(t, "echo alive", "").Stdout; got != "alive\n" {
			t.Fatalf("after the signals: %q", got)
		}
	})
}

// The end of the process is told at once, whoever holds its output.
func TestExitBeforeOutputEnds(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	begin := time.Now()
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"sh", "-c", "setsid sleep 300 & exit 6"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if d := time.Since(begin); d > 2*time.Minute { // the sleep holds the output for twice that
		t.Errorf("exited was told after %v", d)
	}
	if e, ok := p.ExitStatus(); !ok || e.Code != 6 {
		t.Fatalf("exit %+v, %v", e, ok)
	}
	select {
	case <-p.Done():
		t.Fatal("done before the grace was over")
	default:
	}
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d < 200*time.Millisecond || d > 2*time.Minute || !p.PipesHeld() {
		t.Fatalf("done after %v, held %v", d, p.PipesHeld())
	}
}

// A grandchild that floods the output it inherited must not keep it open.
func TestFloodingGrandchildIsCut(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	begin := time.Now()
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"sh", "-c", "setsid yes & exit 0"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > time.Minute || !p.PipesHeld() {
		t.Fatalf("after %v, held %v", d, p.PipesHeld())
	}
}

// slowly is a writer that takes its time and counts.
type slowly struct {
	pause time.Duration
	n     atomic.Int64
}

func (s *slowly) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	s.n.Add(int64(len(p)))
	return len(p), nil
}

// A slow reader loses nothing, even when the process has long ended.
func TestSlowReaderGetsEverything(t *testing.T) {
	l := startAgent(t, mode{})
	out := &slowly{pause: 150 * time.Millisecond}
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"head", "-c", "700000", "/dev/zero"}, Env: env}, guest.Streams{Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if out.n.Load() != 700_000 || p.PipesHeld() {
		t.Fatalf("%d bytes, held %v", out.n.Load(), p.PipesHeld())
	}
}

func BenchmarkTrue(b *testing.B) {
	l := startAgent(b, mode{pid1: true})
	for b.Loop() {
		p, err := l.Start(b.Context(), guest.Command{Args: []string{"/bin/true"}, Env: env}, guest.Streams{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	const size = 64 << 20
	l := startAgent(b, mode{pid1: true})
	b.SetBytes(size)
	for b.Loop() {
		p, err := l.Start(b.Context(), guest.Command{Args: []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}, Env: env}, guest.Streams{Stdout: io.Discard})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func TestStartManyAtOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		const n = 200
		codes := make(chan int, n)
		for i := range n {
			go func() { codes <- l.sh(t, fmt.Sprintf("exit %d", i), "").Code }()
		}
		sum := 0
		for range n {
			sum += <-codes
		}
		if sum != n*(n-1)/2 {
			t.Fatalf("the exit codes add up to %d, want %d", sum, n*(n-1)/2)
		}
	})
}

func TestTooManyChannels(t *testing.T) {
	l := startAgent(t, mode{})
	var started []*guest.Process
	var err error
	for range wire.MaxChannels + 1 {
		var p *guest.Process
		if p, err = l.Start(deadline(t), guest.Command{Args: []string{"sleep", "60"}, Env: env}, guest.Streams{}); err != nil {
			break
		}
		started = append(started, p)
	}
	if len(started) != wire.MaxChannels || code(err) != sandbox.CodeResourceUnavailable {
		t.Fatalf("%d started, then %v", len(started), err)
	}
	for _, p := range started {
		if err := p.Signal(syscall.SIGKILL, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range started {
		if e, err := p.Wait(deadline(t)); err != nil || e.Signal != syscall.SIGKILL {
			t.Fatalf("%+v, %v", e, err)
		}
	}
}

func TestKillAll(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		script := "setsid sleep 60 & sleep 60"
		if !l.pid1 {
			script = "sleep 60" // only groups of own children are within reach
		}
		p, err := l.Start(deadline(t), guest.Command{Args: []string{"sh", "-c", script}, Env: env}, guest.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.KillAll(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if e, err := p.Wait(deadline(t)); err != nil || e.Signal != syscall.SIGKILL || p.PipesHeld() {
			t.Fatalf("%+v, %v, held %v", e, err, p.PipesHeld())
		}
	})
}

func TestContextEndsWaitAndStart(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"sleep", "60"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Wait: %v", err)
	}
	if _, err := l.Start(ctx, guest.Command{Args: []string{"true"}, Env: env}, guest.Streams{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Start: %v", err)
	}
	if _, ok := p.ExitStatus(); ok {
		t.Fatal("an exit status of a living process")
	}
}

func TestCloseEndsEverything(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"sleep", "60"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if _, ok := p.ExitStatus(); ok {
		t.Fatal("an exit status that nobody reported")
	}
	if _, err := p.Wait(deadline(t)); !errors.Is(err, guest.ErrClosed) || code(err) != sandbox.CodeProtocol {
		t.Fatalf("Wait: %v", err)
	}
	if _, err := l.Stat(deadline(t), "/"); !errors.Is(err, guest.ErrClosed) {
		t.Fatalf("Stat: %v", err)
	}
}

func TestAgentDies(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"sleep", "60"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(l.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(deadline(t)); !errors.Is(err, guest.ErrGone) {
		t.Fatalf("Wait: %v", err)
	}
	<-l.Done()
}
