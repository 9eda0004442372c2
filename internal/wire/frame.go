package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Violation is what a peer did that the protocol forbids. The connection
// cannot be used any more. The text holds nothing that the peer chose.
type Violation struct{ What string }

func (v *Violation) Error() string { return "agent protocol: " + v.What }

func violation(what string) error { return &Violation{What: what} }

// Side is one end of the connection.
type Side uint8

// The two sides.
const (
	Host Side = iota
	Agent
)

// Kind is what a frame is.
type Kind uint8

// The kinds of frames; see PROTOCOL.md.
const (
	KindHello   Kind = 1
	KindOpen    Kind = 2
	KindData    Kind = 3
	KindEOF     Kind = 4
	KindWindow  Kind = 5
	KindEvent   Kind = 6
	KindControl Kind = 7
	KindClose   Kind = 8
)

// Sizes of frames, in bytes.
const (
	HeaderSize = 9
	MaxPayload = 64 << 10
	// MaxOpen is the most that the payload of open may have: it carries a
	// program's arguments and environment, of which Linux accepts 2 MiB.
	MaxOpen = 4 << 20
	// MaxData is the most data that fits in one data frame.
	MaxData = MaxPayload - 1
)

// no marks a kind that a side may not send.
const no = -1

// maxPayload is the most payload of each kind, by the side that sends it.
var maxPayload = [...][2]int{
	KindHello:   {Host: 4 << 10, Agent: 4 << 10},
	KindOpen:    {Host: MaxOpen, Agent: no},
	KindData:    {Host: MaxPayload, Agent: MaxPayload},
	KindEOF:     {Host: 1, Agent: 1},
	KindWindow:  {Host: 5, Agent: 5},
	KindEvent:   {Host: no, Agent: MaxPayload},
	KindControl: {Host: 4 << 10, Agent: no},
	KindClose:   {Host: 4 << 10, Agent: MaxPayload},
}

// Frame is one frame as it was read. Payload is valid until the next call of
// Next.
type Frame struct {
	Kind    Kind
	Channel uint32
	Payload []byte
}

// AppendFrame appends a frame to b. The payload must be within its bound.
func AppendFrame(b []byte, kind Kind, channel uint32, payload []byte) []byte {
	b = appendHeader(b, kind, channel, len(payload))
	return append(b, payload...)
}

// AppendData appends a data frame to b; p is at most MaxData bytes.
func AppendData(b []byte, channel uint32, stream uint8, p []byte) []byte {
	b = append(appendHeader(b, KindData, channel, 1+len(p)), stream)
	return append(b, p...)
}

// DataHeader is what stands before the data in a data frame.
const DataHeader = HeaderSize + 1

// PutDataHeader completes a data frame in place: frame has DataHeader bytes of
// room and then the data, at most MaxData bytes.
func PutDataHeader(frame []byte, channel uint32, stream uint8) {
	h := appendHeader(frame[:0], KindData, channel, len(frame)-HeaderSize)
	_ = append(h, stream)
}

// AppendEOF appends an eof frame to b.
func AppendEOF(b []byte, channel uint32, stream uint8) []byte {
	return append(appendHeader(b, KindEOF, channel, 1), stream)
}

// AppendWindow appends a window frame to b that grants n bytes.
func AppendWindow(b []byte, channel uint32, stream uint8, n int) []byte {
	b = append(appendHeader(b, KindWindow, channel, 5), stream)
	return binary.BigEndian.AppendUint32(b, uint32(n)) //nolint:gosec // at most WindowSize
}

func appendHeader(b []byte, kind Kind, channel uint32, length int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(length)) //nolint:gosec // at most MaxOpen
	b = append(b, byte(kind))
	return binary.BigEndian.AppendUint32(b, channel)
}

// Stream returns the stream number of a data, eof or window frame and what
// follows it.
func (f Frame) Stream() (stream uint8, rest []byte, err error) {
	if len(f.Payload) == 0 {
		return 0, nil, violation("a frame without its stream number")
	}
	stream, rest = f.Payload[0], f.Payload[1:]
	switch {
	case stream >= Streams:
		return 0, nil, violation("an unknown stream number")
	case f.Kind == KindData && len(rest) == 0:
		return 0, nil, violation("a data frame without data")
	case f.Kind == KindWindow && len(rest) != 4:
		return 0, nil, violation("a window frame of the wrong length")
	}
	return stream, rest, nil
}

// Grant returns the number of bytes that a window frame grants.
func Grant(rest []byte) uint32 { return binary.BigEndian.Uint32(rest) }

// firstBuffer is what a Reader allocates before it has seen a long frame.
const firstBuffer = 4 << 10

// Reader reads the frames that one side sends. It never holds more than one
// frame of the largest size that this side may send. Not safe for concurrent use.
type Reader struct {
	r      io.Reader
	from   Side
	buf    []byte
	lo, hi int // buf[lo:hi] has been read and not returned
}

// NewReader returns a Reader of what the given side sends.
func NewReader(r io.Reader, from Side) *Reader {
	return &Reader{r: r, from: from, buf: make([]byte, firstBuffer)}
}

// Next returns the next frame. The error is io.EOF at the end between two
// frames, a *Violation for a frame that is not allowed, and otherwise that of
// the connection.
func (r *Reader) Next() (Frame, error) {
	head, err := r.need(HeaderSize)
	if err != nil {
		return Frame{}, err
	}
	length := binary.BigEndian.Uint32(head)
	f := Frame{Kind: Kind(head[4]), Channel: binary.BigEndian.Uint32(head[5:])}
	if err := r.check(f, length); err != nil {
		return Frame{}, err
	}
	whole, err := r.need(HeaderSize + int(length))
	if err != nil {
		return Frame{}, err
	}
	f.Payload = whole[HeaderSize:]
	r.lo += len(whole)
	return f, nil
}

// Rest is what has been read of a frame whose end has not come. It is only to be called where
// no call of Next goes on but one that waits for the connection.
func (r *Reader) Rest() []byte { return bytes.Clone(r.buf[r.lo:r.hi]) }

func (r *Reader) check(f Frame, length uint32) error {
	if int(f.Kind) >= len(maxPayload) || f.Kind == 0 || maxPayload[f.Kind][r.from] == no {
		return violation("a frame of a kind that this side may not send")
	}
	if int64(length) > int64(maxPayload[f.Kind][r.from]) {
		return violation("a frame longer than its kind may be")
	}
	if (f.Channel == 0) != (f.Kind == KindHello) {
		return violation("a frame on a channel where its kind does not belong")
	}
	return nil
}

// need returns the next n bytes without consuming them.
func (r *Reader) need(n int) ([]byte, error) {
	if r.hi-r.lo < n {
		r.makeRoom(n)
	}
	for r.hi-r.lo < n {
		k, err := r.r.Read(r.buf[r.hi:])
		r.hi += k
		if err != nil && r.hi-r.lo < n {
			if errors.Is(err, io.EOF) && r.hi > r.lo {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return r.buf[r.lo : r.lo+n], nil
}

// makeRoom makes place for n bytes from lo on. A buffer that one large open
// frame needed is given up after it.
func (r *Reader) makeRoom(n int) {
	buf := r.buf
	switch usual := HeaderSize + MaxPayload; {
	case n > len(buf):
		buf = make([]byte, max(n, min(2*len(buf), usual)))
	case len(buf) > usual && n <= usual:
		buf = make([]byte, max(usual, r.hi-r.lo))
	case r.lo+n <= len(buf) && r.lo != r.hi:
		return
	}
	r.hi = copy(buf, r.buf[r.lo:r.hi])
	r.lo, r.buf = 0, buf
}
