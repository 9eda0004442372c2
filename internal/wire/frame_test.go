package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// sample is a stream of every kind that the host may send.
func sample() []byte {
	b := AppendFrame(nil, KindHello, 0, []byte("a hello"))
	b = AppendFrame(b, KindOpen, 1, []byte("a request"))
	b = AppendFrame(b, KindOpen, 2, bytes.Repeat([]byte("x"), MaxOpen))
	b = AppendData(b, 2, Stdin, bytes.Repeat([]byte("y"), MaxData))
	b = AppendWindow(b, 2, Stdout, 70_000)
	b = AppendEOF(b, 2, Stdin)
	b = AppendFrame(b, KindControl, 2, []byte("a control"))
	return AppendFrame(b, KindClose, 2, nil)
}

func TestFramesRoundTrip(t *testing.T) {
	type seen struct {
		Kind    Kind
		Channel uint32
		Length  int
	}
	want := []seen{
		{KindHello, 0, 7},
		{KindOpen, 1, 9},
		{KindOpen, 2, MaxOpen},
		{KindData, 2, MaxPayload},
		{KindWindow, 2, 5},
		{KindEOF, 2, 1},
		{KindControl, 2, 9},
		{KindClose, 2, 0},
	}
	for name, r := range map[string]io.Reader{
		"whole":    bytes.NewReader(sample()),
		"halves":   iotest.HalfReader(bytes.NewReader(sample())),
		"data+EOF": iotest.DataErrReader(bytes.NewReader(sample())),
		"bytes":    iotest.OneByteReader(bytes.NewReader(sample())),
	} {
		t.Run(name, func(t *testing.T) {
			var got []seen
			frames := NewReader(r, Host)
			for {
				f, err := frames.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("Next after %d frames: %v", len(got), err)
				}
				got = append(got, seen{f.Kind, f.Channel, len(f.Payload)})
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("frames (-want +got):\n%s", diff)
			}
			if n := len(frames.buf); n > HeaderSize+MaxPayload {
				t.Fatalf("the reader keeps %d bytes after a large frame", n)
			}
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	frame := func(length uint32, kind Kind, channel uint32) []byte {
		return appendHeader(nil, kind, channel, int(length))
	}
	for _, test := range []struct {
		name  string
		from  Side
		bytes []byte
	}{
		{"length of all ones", Agent, bytes.Repeat([]byte{0xff}, 16)},
		{"one byte too long", Agent, frame(MaxPayload+1, KindData, 1)},
		{"length 2^31", Agent, frame(1<<31, KindData, 1)},
		{"open too long", Host, frame(MaxOpen+1, KindOpen, 1)},
		{"kind 0", Agent, frame(0, 0, 1)},
		{"kind 9", Agent, frame(0, 9, 1)},
		{"kind 255", Agent, frame(0, 255, 1)},
		{"open from the agent", Agent, frame(2, KindOpen, 1)},
		{"control from the agent", Agent, frame(2, KindControl, 1)},
		{"event from the host", Host, frame(2, KindEvent, 1)},
		{"data on channel 0", Agent, frame(2, KindData, 0)},
		{"hello on channel 1", Agent, frame(2, KindHello, 1)},
		{"long hello", Agent, frame(5000, KindHello, 0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(test.bytes), test.from).Next()
			var v *Violation
			if !errors.As(err, &v) {
				t.Fatalf("Next returned %v, want a *Violation", err)
			}
		})
	}
}

func TestReaderTruncated(t *testing.T) {
	whole := AppendFrame(nil, KindEvent, 1, []byte("an event"))
	for n := 1; n < len(whole); n++ {
		if _, err := NewReader(bytes.NewReader(whole[:n]), Agent).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after %d of %d bytes: %v, want unexpected EOF", n, len(whole), err)
		}
	}
}

// A claimed length must not be allocated before its kind has been checked, and
// a truncated frame must cost no more than the kind's bound.
func TestReaderAllocatesLittle(t *testing.T) {
	claim := appendHeader(nil, KindData, 1, MaxPayload)
	r := NewReader(bytes.NewReader(claim), Agent)
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("Next: %v", err)
	}
	if len(r.buf) > HeaderSize+MaxPayload {
		t.Fatalf("the reader allocated %d bytes", len(r.buf))
	}
}

func TestStreamNumbers(t *testing.T) {
	for _, test := range []struct {
		name  string
		frame Frame
	}{
		{"empty", Frame{Kind: KindEOF}},
		{"stream 3", Frame{Kind: KindEOF, Payload: []byte{3}}},
		{"empty data", Frame{Kind: KindData, Payload: []byte{1}}},
		{"short window", Frame{Kind: KindWindow, Payload: []byte{1, 0, 0}}},
	} {
		if _, _, err := test.frame.Stream(); err == nil {
			t.Errorf("%s was accepted", test.name)
		}
	}
}

// A frame completed in place is the same as one that was appended.
func TestPutDataHeader(t *testing.T) {
	for _, n := range []int{1, 1000, MaxData} {
		data := bytes.Repeat([]byte("d"), n)
		frame := append(make([]byte, DataHeader), data...)
		PutDataHeader(frame, 7, Stderr)
		if !bytes.Equal(frame, AppendData(nil, 7, Stderr, data)) {
			t.Errorf("%d bytes: another frame", n)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(AppendFrame(nil, KindHello, 0, []byte("a hello")), true)
	f.Add(AppendWindow(AppendEOF(AppendData(nil, 1, 1, []byte("abc")), 1, 1), 1, 0, 5), true)
	f.Add(bytes.Repeat([]byte{0xff}, 32), false)
	f.Fuzz(func(t *testing.T, b []byte, host bool) {
		from := Agent
		if host {
			from = Host
		}
		frames, rebuilt := NewReader(iotest.HalfReader(bytes.NewReader(b)), from), []byte(nil)
		for {
			fr, err := frames.Next()
			if err != nil {
				break
			}
			if len(fr.Payload) > maxPayload[fr.Kind][from] {
				t.Fatalf("kind %d with %d bytes", fr.Kind, len(fr.Payload))
			}
			if _, rest, err := fr.Stream(); err == nil && fr.Kind == KindWindow {
				Grant(rest)
			}
			rebuilt = AppendFrame(rebuilt, fr.Kind, fr.Channel, fr.Payload)
		}
		if !bytes.HasPrefix(b, rebuilt) {
			t.Fatal("the frames read are not those that were written")
		}
	})
}
