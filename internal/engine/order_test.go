package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

func TestOrderOfOutput(t *testing.T) {
	r := &execResult{stdout: newCapture(10, nil), stderr: newCapture(10, nil)}
	r.stdout.order, r.stderr.order = r.order.of(wire.Stdout), r.order.of(wire.Stderr)
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
	out.order, warn.order = o.of(wire.Stdout), o.of(wire.Stderr)
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
