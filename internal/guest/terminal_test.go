package guest_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// screen is what a terminal has shown so far.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the screen shows what.
func (s *screen) await(t *testing.T, what string) {
	t.Helper()
	late := time.After(time.Minute)
	for !strings.Contains(s.String(), what) {
		select {
		case <-s.more:
		case <-late:
			t.Fatalf("the terminal never showed %q: %q", what, s.String())
		}
	}
}

// terminal starts a command on a terminal. The writer is its keyboard.
func (l *live) terminal(t *testing.T, args ...string) (*guest.Process, *io.PipeWriter, *screen) {
	t.Helper()
	keys, typing := io.Pipe()
	shown := newScreen()
	cmd := guest.Command{Args: args, Env: append([]string{"TERM=xterm"}, env...), Terminal: &wire.TerminalSize{Cols: 91, Rows: 33}}
	p, err := l.Start(deadline(t), cmd, guest.Streams{Stdin: keys, Stdout: shown, Stderr: failing{errors.New("nothing belongs here")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = typing.Close() })
	return p, typing, shown
}

func typeIn(t *testing.T, w io.Writer, keys string) {
	t.Helper()
	if _, err := io.WriteString(w, keys); err != nil {
		t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		p, keys, shown := l.terminal(t, "sh", "-c", "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo three; trap 'stty size' WINCH; while read x; do echo got $x; done; echo over")
		shown.await(t, "33 91")
		shown.await(t, "three")
		if !strings.Contains(shown.String(), "/dev/pts/") {
			t.Errorf("the terminal has no name: %q", shown.String())
		}
		typeIn(t, keys, "hello\n")
		shown.await(t, "got hello")
		if err := p.Resize(120, 50); err != nil {
			t.Fatal(err)
		}
		typeIn(t, keys, "again\n") // dash runs a trap once read returns
		shown.await(t, "50 120")
		if err := keys.Close(); err != nil { // typed as ^D
			t.Fatal(err)
		}
		shown.await(t, "over")
		exit, err := p.Wait(deadline(t))
		if err != nil || exit.Code != 0 || p.PipesHeld() {
			t.Fatalf("%+v, %v, held %v", exit, err, p.PipesHeld())
		}
	})
}

// Keys that mean a signal reach the terminal's programs, and it is their
// controlling terminal.
func TestTerminalInterrupt(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		p, keys, _ := l.terminal(t, "sleep", "60")
		typeIn(t, keys, "\x03")
		exit, err := p.Wait(deadline(t))
		if err != nil || exit.Signal != syscall.SIGINT {
			t.Fatalf("%+v, %v", exit, err)
		}
	})
}

// What holds the terminal after the end of the process does not hold the
// caller.
func TestTerminalHeld(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	p, _, shown := l.terminal(t, "sh", "-c", "trap '' HUP; (sleep 60 &) ; echo done")
	exit, err := p.Wait(deadline(t))
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	shown.await(t, "done")
	if err := l.KillAll(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

// A great deal of output arrives whole, and a reader that is slow stops the
// program.
func TestTerminalFlood(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	p, _, shown := l.terminal(t, "sh", "-c", "stty -opost; seq 1 200000; echo end")
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := shown.String(); !strings.HasSuffix(got, "199999\n200000\nend\n") || strings.Count(got, "\n") != 200_001 {
		t.Fatalf("%d bytes came, ending in %q", len(got), got[max(0, len(got)-40):])
	}
}

func TestTerminalRefusals(t *testing.T) {
	l := startAgent(t, mode{})
	for _, size := range []wire.TerminalSize{{}, {Cols: 80}, {Cols: -1, Rows: 24}, {Cols: 80, Rows: wire.MaxTerminal + 1}} {
		_, err := l.Start(deadline(t), guest.Command{Args: []string{"true"}, Env: env, Terminal: &size}, guest.Streams{})
		if code(err) != sandbox.CodeLimitInvalid {
			t.Errorf("%+v: %v", size, err)
		}
	}
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"true"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(80, 24); code(err) != sandbox.CodeSpecInvalid {
		t.Errorf("Resize without a terminal: %v", err)
	}
	if _, err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

// A program that closes its end of the terminal and goes on is not hung up on.
func TestTerminalClosedByItsProgram(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	for range 20 {
		p, _, _ := l.terminal(t, "sh", "-c", "exec 0<&- 1>&- 2>&-; sleep 0.05; exit 7")
		if exit, err := p.Wait(deadline(t)); err != nil || exit.Code != 7 {
			t.Fatalf("%+v, %v", exit, err)
		}
	}
}
