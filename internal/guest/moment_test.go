package guest_test

import (
	"bufio"
	"fmt"
	"io"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// A moment is what runs and how much of its streams is on its way. While it lasts nothing is
// sent, and what was asked for meanwhile is sent then. While anything else than processes goes
// on there is none, and the connection goes on.
func TestMoment(t *testing.T) {
	l := startAgent(t, mode{})
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	defer func() { _, _, _ = in.Close(), out.Close(), stdout.Close() }()
	p, err := l.Start(deadline(t), guest.Command{Args: []string{"cat"}, Env: env}, guest.Streams{Stdin: stdin, Stdout: stdout})
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	said := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	for i := range 3 {
		if _, err := fmt.Fprintln(in, i); err != nil {
			t.Fatal(err)
		}
		said(fmt.Sprintln(i))
		held, err := l.Hold(deadline(t), "/")
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Moment(deadline(t), held)
		if err != nil {
			t.Fatal(err)
		}
		n := 2 * (i + 1)
		want := guest.ProcessMoment{Channel: p.Channel(), PID: p.PID(), Owed: [2]int{n, 0}, Stdin: true, StdinLeft: wire.UploadWindow(wire.OpStart) - n}
		if len(m.Processes) != 1 || m.Processes[0] != want || m.Last <= p.Channel() || len(m.Rest) > 0 {
			t.Errorf("%+v, want %+v", m, want)
		}
		asked := make(chan error, 1)
		go func() { _, err := l.Stat(deadline(t), "/"); asked <- err }()
		select {
		case err := <-asked:
			t.Fatalf("asked and answered in that moment: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		held.Release()
		held.Release()
		if err := <-asked; err != nil {
			t.Errorf("asked in that moment: %v", err)
		}
	}
	watch := l.observe(t, t.TempDir(), false)
	held, err := l.Hold(deadline(t), "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Moment(deadline(t), held); sandbox.AsError(err).Code != sandbox.CodeConflict || sandbox.AsError(err).Hint == "" {
		t.Errorf("while a directory is watched: %v", err)
	}
	held.Release()
	watch.stop()
	if _, err := fmt.Fprintln(in, "after all"); err != nil {
		t.Fatal(err)
	}
	said("after all\n")
	_ = in.Close()
	if e, err := p.Wait(deadline(t)); err != nil || e.Code != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

// A connection that ends is no moment, and keeps nobody.
func TestMomentOfTheEnd(t *testing.T) {
	l := startAgent(t, mode{})
	held, err := l.Hold(deadline(t), "/")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Moment(deadline(t), held); err == nil {
		t.Error("a connection that has ended has a moment")
	}
	held.Release()
	if _, err := l.Hold(deadline(t), "/"); err == nil {
		t.Error("it can be held")
	}
}
