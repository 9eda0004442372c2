package engine

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
	r := &execResult{stdout: newCapture(10, nil), stderr: newCapture(10, nil)}
	r.stdout.order, r.stderr.order = r.order.notes(wire.Stdout, 10), r.order.notes(wire.Stderr, 10)
	write := func(c *capture, s string) { _, _ = c.Write([]byte(s)) }
	write(r.stdout, "ab")
	write(r.stdout, "c")
	if got := r.order.known(); got != nil {
		t.Errorf("one stream: %v", got)
	}
	write(r.stderr, "\xff")
	write(r.stdout, "defghijklm") // seven of them are kept
	write(r.stdout, "no more")
	write(r.stderr, "xy")
	want := sandbox.ExactOutput{
		StdoutRaw: []byte("abcdefghij"), StderrRaw: []byte("\xffxy"),
		OutputOrder: []sandbox.OutputPiece{{Stream: "stdout", Bytes: 3}, {Stream: "stderr", Bytes: 1}, {Stream: "stdout", Bytes: 7}, {Stream: "stderr", Bytes: 2}},
	}
	if diff := cmp.Diff(want, exactOutput(r.stdout, r.stderr, &r.order, true)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e := exactOutput(r.stdout, r.stderr, &r.order, false); e.StdoutRaw != nil || e.StderrRaw != nil {
		t.Errorf("not asked for: %v", e)
	}
}

// A guest that alternates between its streams makes no list grow.
func TestOrderOfOutputIsBounded(t *testing.T) {
	var o order
	out, warn := newSpool(1<<20), newSpool(1<<20)
	out.order, warn.order = o.notes(wire.Stdout, 1<<20), o.notes(wire.Stderr, 1<<20)
	for range 10 * sandbox.MaxOutputPieces {
		_, _ = out.Write([]byte("o"))
		_, _ = warn.Write([]byte("e"))
	}
	got := o.known()
	if len(got) != sandbox.MaxOutputPieces || cap(o.pieces) > 2*sandbox.MaxOutputPieces {
		t.Fatalf("%d pieces, room for %d", len(got), cap(o.pieces))
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
	p := &Process{limits: sandbox.Limits{OutputBytes: 8}}
	for _, stream := range []uint8{wire.Stdout, wire.Stderr} {
		p.outputs[stream] = newSpool(8)
		p.outputs[stream].order = p.order.notes(stream, 8)
	}
	write := func(stream uint8, s string) { _, _ = p.outputs[stream].Write([]byte(s)) }
	live := bothFrom(p, 0, 0)
	defer live.Close()
	write(wire.Stdout, "a")
	write(wire.Stderr, "BC")
	write(wire.Stdout, "d")
	write(wire.Stderr, "E")
	if got := readAll(t, live, 4); got != "0a 1BC 0d 1E" {
		t.Errorf("while it is written: %s", got)
	}
	late := bothFrom(p, 1, 1)
	defer late.Close()
	if _, err := late.Begin(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, late, 3); got != "1C 0d 1E" {
		t.Errorf("from an offset on: %s", got)
	}
	live.Close()
	late.Close()
	write(wire.Stderr, "fghijklm") // "BC" and "E" are not kept any more
	write(wire.Stdout, "n")
	p.outputs[wire.Stdout].close()
	p.outputs[wire.Stderr].close()
	end := bothFrom(p, -1, -1)
	if got := readAll(t, end, 9); got != "0a 0d 1fghij 0n 1klm EOF" {
		t.Errorf("what is kept: %s", got)
	}
	if _, err := bothFrom(p, 0, 0).Begin(); sandbox.AsError(err).Code != sandbox.CodeOffsetGone {
		t.Errorf("what is gone: %v", err)
	}
}

func bothFrom(p *Process, stdout, stderr int64) *Outputs {
	return p.newOutputs([2]*Output{p.outputs[wire.Stdout].open(stdout), p.outputs[wire.Stderr].open(stderr)})
}

// readAll reads so many pieces, or to the end.
func readAll(t *testing.T, o *Outputs, pieces int) string {
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
	p := &Process{}
	for _, stream := range []uint8{wire.Stdout, wire.Stderr} {
		p.outputs[stream] = newSpool(4 * turns)
		p.outputs[stream].order = p.order.notes(stream, 4*turns)
	}
	o := bothFrom(p, 0, 0)
	defer o.Close()
	go func() {
		for i := range turns {
			_, _ = fmt.Fprintf(p.outputs[wire.Stdout], "%d\n", i)
			_, _ = fmt.Fprintf(p.outputs[wire.Stderr], "%d\n", i)
		}
		p.outputs[wire.Stdout].close()
		p.outputs[wire.Stderr].close()
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
		if want := fmt.Sprintf("%d\n", n/2); stream != n%2 || string(chunk) != want {
			t.Fatalf("piece %d is %q of stream %d, want %q", n, chunk, stream, want)
		}
		last[stream] = string(chunk)
	}
}

// What arrives first is first, whichever of the two writers is faster, and who reads
// waits for it.
func TestOutputIsInTheOrderOfItsArrival(t *testing.T) {
	p := &Process{}
	for _, stream := range []uint8{wire.Stdout, wire.Stderr} {
		p.outputs[stream] = newSpool(8)
		p.outputs[stream].order = p.order.notes(stream, 8)
	}
	o := bothFrom(p, 0, 0)
	defer o.Close()
	p.outputs[wire.Stdout].order.arrived(3)
	p.outputs[wire.Stderr].order.arrived(3)
	p.outputs[wire.Stdout].order.arrived(9) // five of them are noted
	_, _ = p.outputs[wire.Stderr].Write([]byte("err"))
	go func() {
		_, _ = p.outputs[wire.Stdout].Write([]byte("out"))
		_, _ = p.outputs[wire.Stdout].Write([]byte("more"))
	}()
	if got := readAll(t, o, 3); got != "0out 1err 0more" {
		t.Errorf("got %s", got)
	}
	want := []sandbox.OutputPiece{{Stream: "stdout", Bytes: 3}, {Stream: "stderr", Bytes: 3}, {Stream: "stdout", Bytes: 5}}
	if diff := cmp.Diff(want, p.order.known()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
