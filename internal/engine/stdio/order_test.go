package stdio

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func TestOrderOfOutput(t *testing.T) {
	c := NewCapture(10, nil, nil)
	write := func(stream uint8, s string) { _, _ = c.Writer(stream).Write([]byte(s)) }
	write(wire.Stdout, "ab")
	write(wire.Stdout, "c")
	if got := c.Exact(false).OutputOrder; got != nil {
		t.Errorf("one stream: %v", got)
	}
	write(wire.Stderr, "\xff")
	write(wire.Stdout, "defghijklm") // seven of them are kept
	write(wire.Stdout, "no more")
	write(wire.Stderr, "xy")
	want := sandbox.ExactOutput{
		StdoutRaw: []byte("abcdefghij"), StderrRaw: []byte("\xffxy"),
		OutputOrder: []sandbox.OutputPiece{{Stream: "stdout", Bytes: 3}, {Stream: "stderr", Bytes: 1}, {Stream: "stdout", Bytes: 7}, {Stream: "stderr", Bytes: 2}},
	}
	if diff := cmp.Diff(want, c.Exact(true)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e := c.Exact(false); e.StdoutRaw != nil || e.StderrRaw != nil {
		t.Errorf("not asked for: %v", e)
	}
}

// A guest that alternates between its streams makes no list grow.
func TestOrderOfOutputIsBounded(t *testing.T) {
	s := NewSpool(1 << 20)
	out, warn := s.Writer(wire.Stdout), s.Writer(wire.Stderr)
	for range 10 * sandbox.MaxOutputPieces {
		_, _ = out.Write([]byte("o"))
		_, _ = warn.Write([]byte("e"))
	}
	got := s.Order()
	if len(got) != sandbox.MaxOutputPieces || cap(s.order.pieces) > 2*sandbox.MaxOutputPieces {
		t.Fatalf("%d pieces, room for %d", len(got), cap(s.order.pieces))
	}
	for i, p := range got {
		if p.Bytes != 1 || p.Stream != []string{"stdout", "stderr"}[i%2] {
			t.Fatalf("piece %d is %+v", i, p)
		}
	}
}

// Who reads both streams gets what was written in the order in which it came, also
// long after, from any offset on, and all of it where the order was noted no further.
func TestOutputsComeInTheirOrder(t *testing.T) {
	p := NewSpool(8)
	write := func(stream uint8, s string) { _, _ = p.Writer(stream).Write([]byte(s)) }
	live := bothFrom(p, 0, 0)
	defer live.Close()
	write(wire.Stdout, "a")
	write(wire.Stderr, "BC")
	write(wire.Stdout, "d")
	write(wire.Stderr, "E")
	if got := readAll(t, live, 4); got != "1a 2BC 1d 2E" {
		t.Errorf("while it is written: %s", got)
	}
	late := bothFrom(p, 1, 1)
	defer late.Close()
	if _, err := late.Begin(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, late, 3); got != "2C 1d 2E" {
		t.Errorf("from an offset on: %s", got)
	}
	live.Close()
	late.Close()
	write(wire.Stderr, "fghijklm") // "BC" and "E" are not kept any more
	write(wire.Stdout, "n")
	p.Close()
	end := bothFrom(p, -1, -1)
	if got := readAll(t, end, 9); got != "1a 1d 2fghij 1n 2klm EOF" {
		t.Errorf("what is kept: %s", got)
	}
	if _, err := bothFrom(p, 0, 0).Begin(); sandbox.AsError(err).Code != sandbox.CodeOffsetGone {
		t.Errorf("what is gone: %v", err)
	}
}

func bothFrom(s *Spool, stdout, stderr int64) *Follower {
	return s.Follow(s.Open(wire.Stdout, stdout, nil), s.Open(wire.Stderr, stderr, nil))
}

// readAll reads so many pieces, or to the end.
func readAll(t *testing.T, o *Follower, pieces int) string {
	t.Helper()
	var got []string
	for range pieces {
		stream, chunk, _, err := o.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return strings.Join(append(got, "EOF"), " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(stream)+string(chunk))
	}
	return strings.Join(got, " ")
}

// A program that writes to both in turns is followed without a piece lost or out of
// its turn, however the reader and the writer get on.
func TestOutputsFollowTheWriter(t *testing.T) {
	const turns = sandbox.MaxOutputPieces / 2
	p := NewSpool(4 * turns)
	o := bothFrom(p, 0, 0)
	defer o.Close()
	go func() {
		for i := range turns {
			_, _ = fmt.Fprintf(p.Writer(wire.Stdout), "%d\n", i)
			_, _ = fmt.Fprintf(p.Writer(wire.Stderr), "%d\n", i)
		}
		p.Close()
	}()
	var last [2]string
	for n := 0; ; n++ {
		stream, chunk, _, err := o.Next(t.Context())
		if errors.Is(err, io.EOF) {
			if want := fmt.Sprintf("%d\n", turns-1); last[0] != want || last[1] != want {
				t.Fatalf("ended at %q", last)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d\n", n/2); int(stream) != 1+n%2 || string(chunk) != want {
			t.Fatalf("piece %d is %q of stream %d, want %q", n, chunk, stream, want)
		}
		last[stream-wire.Stdout] = string(chunk)
	}
}

// What arrives first is first, whichever of the two writers is faster, and who reads
// waits for it.
func TestOutputIsInTheOrderOfItsArrival(t *testing.T) {
	p := NewSpool(8)
	o := bothFrom(p, 0, 0)
	defer o.Close()
	p.Arrived(wire.Stdout, 3)
	p.Arrived(wire.Stderr, 3)
	p.Arrived(wire.Stdout, 9) // five of them are noted
	_, _ = p.Writer(wire.Stderr).Write([]byte("err"))
	go func() {
		_, _ = p.Writer(wire.Stdout).Write([]byte("out"))
		_, _ = p.Writer(wire.Stdout).Write([]byte("more"))
	}()
	if got := readAll(t, o, 3); got != "1out 2err 1more" {
		t.Errorf("got %s", got)
	}
	want := []sandbox.OutputPiece{{Stream: "stdout", Bytes: 3}, {Stream: "stderr", Bytes: 3}, {Stream: "stdout", Bytes: 5}}
	if diff := cmp.Diff(want, p.Order()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
