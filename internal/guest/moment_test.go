package guest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
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
		want := guest.ProcessMoment{Channel: p.Channel(), PID: p.PID(), Owed: [2]int{n, 0}, Input: true, Stdin: true, StdinLeft: wire.UploadWindow(wire.OpStart) - n}
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

// pipe is what is read of a stream, line by line.
func pipe(t *testing.T) (*bufio.Reader, io.Writer) {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return bufio.NewReader(r), w
}

// What goes on reads the rest of a frame whose beginning was read before, grants what was owed,
// and sends no more than was left.
func TestContinued(t *testing.T) {
	frame := wire.AppendData(nil, 3, wire.Stdout, []byte("half\n"))
	begin := func(rest []byte) (agent net.Conn, frames *wire.Reader, p *guest.Process, out *bufio.Reader) {
		conn, far := net.Pipe()
		_ = far.SetDeadline(time.Now().Add(10 * time.Second))
		out, w := pipe(t)
		at := guest.Moment{Last: 5, Rest: rest, Processes: []guest.ProcessMoment{{Channel: 3, PID: 9, Owed: [2]int{7, 0}, Input: true, Stdin: true, StdinLeft: 2}}}
		g, all := guest.Continued(conn, wire.Hello{}, at, func(guest.ProcessMoment) guest.Streams {
			return guest.Streams{Stdin: strings.NewReader("abcd"), Stdout: w}
		})
		t.Cleanup(func() { _, _ = g.Close(), far.Close() })
		return far, wire.NewReader(far, wire.Host), all[0], out
	}
	agent, frames, p, out := begin(frame[:7])
	next := func(kind wire.Kind, payload string) {
		t.Helper()
		if f, err := frames.Next(); err != nil || f.Kind != kind || f.Channel != 3 || string(f.Payload) != payload {
			t.Fatalf("%+v, %v; want %d with %q", f, err, kind, payload)
		}
	}
	next(wire.KindWindow, "\x01\x00\x00\x00\x07")
	next(wire.KindData, "\x00ab")
	say := func(b []byte) {
		t.Helper()
		if _, err := agent.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	say(frame[7:])
	if said, err := out.ReadString('\n'); err != nil || said != "half\n" {
		t.Errorf("%q, %v", said, err)
	}
	say(wire.AppendWindow(nil, 3, wire.Stdin, 2))
	next(wire.KindData, "\x00cd")
	next(wire.KindEOF, "\x00")
	for i := range uint8(2) {
		say(wire.AppendEOF(nil, 3, wire.Stdout+i))
	}
	say(wire.AppendMessage(nil, wire.KindEvent, 3, &wire.Event{Kind: wire.EventExited, Exit: &wire.Exit{Code: 7}}))
	say(wire.AppendMessage(nil, wire.KindClose, 3, &wire.Outcome{}))
	if e, err := p.Wait(deadline(t)); err != nil || e.Code != 7 || p.PID() != 9 {
		t.Errorf("%+v, %v", e, err)
	}
	agent, _, p, _ = begin(nil) // the control: without the beginning the rest is no frame
	go func() { _, _ = io.Copy(io.Discard, agent) }()
	go func() { _, _ = agent.Write(slices.Concat(frame[7:], frame, frame)) }()
	if _, err := p.Wait(deadline(t)); err == nil {
		t.Error("control: the rest of a frame is taken for one")
	}
}

// An agent that was still writing input, whose end it had been sent, says that the process
// takes no more. That ends nothing.
func TestContinuedWithInputThatHasEnded(t *testing.T) {
	for _, input := range []bool{true, false} { // the second is the control
		conn, far := net.Pipe()
		_ = far.SetDeadline(time.Now().Add(10 * time.Second))
		at := guest.Moment{Last: 3, Processes: []guest.ProcessMoment{{Channel: 3, PID: 9, Input: input}}}
		g, all := guest.Continued(conn, wire.Hello{}, at, func(guest.ProcessMoment) guest.Streams { return guest.Streams{} })
		t.Cleanup(func() { _, _ = g.Close(), far.Close() })
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			b := wire.AppendEOF(nil, 3, wire.Stdin)
			for i := range uint8(2) {
				b = wire.AppendEOF(b, 3, wire.Stdout+i)
			}
			b = wire.AppendMessage(b, wire.KindEvent, 3, &wire.Event{Kind: wire.EventExited, Exit: &wire.Exit{Code: 7}})
			_, _ = far.Write(wire.AppendMessage(b, wire.KindClose, 3, &wire.Outcome{}))
		}()
		if e, err := all[0].Wait(deadline(t)); (err == nil) != input || input && e.Code != 7 {
			t.Errorf("with input %v: %+v, %v", input, e, err)
		}
	}
}
