package wire

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
)

// Message is a control payload: one of this package's types. Its fields method
// names its fields in the order in which they travel, for both directions, so
// that the two can never differ.
type Message interface{ fields(c *codec) }

// Encode returns a message's bytes. Text that is not UTF-8 is made so.
func Encode(m Message) []byte {
	c := codec{b: make([]byte, 0, usualMessage)}
	m.fields(&c)
	return c.b
}

// AppendMessage appends a frame with a message to b.
func AppendMessage(b []byte, kind Kind, channel uint32, m Message) []byte {
	start := len(b)
	c := codec{b: appendHeader(b, kind, channel, 0)}
	m.fields(&c)
	binary.BigEndian.PutUint32(c.b[start:], uint32(len(c.b)-start-HeaderSize)) //nolint:gosec // at most MaxOpen
	return c.b
}

// usualMessage is room for most messages.
const usualMessage = 256

// Decode reads exactly one message, all of whose fields it sets. There is one
// way to write each message; whatever else comes is a *Violation. What is
// allocated is bounded by the payload, whose length the Reader has bounded.
func Decode(payload []byte, m Message) error {
	c := codec{b: payload, reading: true}
	m.fields(&c)
	switch {
	case c.bad:
		return violation("a message that cannot be decoded")
	case len(c.b) > 0:
		return violation("something after a message")
	}
	return nil
}

// codec writes or reads fields, one after another. Without reflection: that
// would cost the agent a millisecond for the first message of each kind.
type codec struct {
	b       []byte // what has been written, or what is still to be read
	reading bool
	bad     bool // what was read is not a message; nothing more is read
}

// fail ends reading.
func (c *codec) fail() { c.bad, c.b = true, nil }

// uint is an unsigned number as a varint of the fewest bytes, at most limit.
func (c *codec) uint(v, limit uint64) uint64 {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, v)
		return v
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 || v > limit || n > 1 && c.b[n-1] == 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

// int64 is a signed number: 0, -1, 1, -2, … are sent as 0, 1, 2, 3, …
func (c *codec) int64(v *int64) {
	u := c.uint(uint64(*v)<<1^uint64(*v>>63), math.MaxUint64) //nolint:gosec // the bits are meant
	*v = int64(u>>1) ^ -int64(u&1)                            //nolint:gosec // the bits are meant
}

func (c *codec) int(v *int) {
	n := int64(*v)
	c.int64(&n)
	*v = int(n)
}

func (c *codec) uint32(v *uint32) { *v = uint32(c.uint(uint64(*v), math.MaxUint32)) } //nolint:gosec // bounded
func (c *codec) uint64(v *uint64) { *v = c.uint(*v, math.MaxUint64) }

func (c *codec) bool(v *bool) {
	n := uint64(0)
	if *v {
		n = 1
	}
	*v = c.uint(n, 1) == 1
}

// take reads n bytes, which stay part of the payload.
func (c *codec) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

// text is a string: its length and its bytes, which are UTF-8.
func text[S ~string](c *codec, v *S) {
	if c.reading {
		p := c.take(c.uint(0, math.MaxUint64))
		if !utf8.Valid(p) {
			c.fail()
			return
		}
		*v = S(p)
		return
	}
	s := string(*v)
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	c.b = append(binary.AppendUvarint(c.b, uint64(len(s))), s...)
}

// bytes is content: its length and its bytes.
func (c *codec) bytes(v *[]byte) {
	if c.reading {
		*v = append([]byte(nil), c.take(c.uint(0, math.MaxUint64))...)
		return
	}
	c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
}

// list is a number of elements and those. Each has at least a byte, so what
// is read costs no more memory than a fixed multiple of its payload.
func list[T any](c *codec, v *[]T, element func(c *codec, v *T)) {
	n := c.uint(uint64(len(*v)), math.MaxUint64)
	if c.reading {
		*v = nil
	}
	for i := 0; uint64(i) < n && !c.bad; i++ { //nolint:gosec // never negative
		if c.reading {
			if len(c.b) == 0 {
				c.fail()
				return
			}
			*v = append(*v, *new(T))
		}
		element(c, &(*v)[i])
	}
}

// pointer is what makes *T a Message, for optional and part.
type pointer[T any] interface {
	*T
	Message
}

// optional is a part that may be missing.
func optional[T any, P pointer[T]](c *codec, v **T) {
	there := *v != nil
	if c.bool(&there); !there {
		*v = nil
		return
	}
	if c.reading {
		*v = new(T)
	}
	P(*v).fields(c)
}

// part is an element of a list that is a message itself.
func part[T any, P pointer[T]](c *codec, v *T) { P(v).fields(c) }
