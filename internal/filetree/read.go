package filetree

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// Reader reads a stream. It trusts nothing in it.
type Reader struct {
	r       *bufio.Reader
	order   order
	summary Summary
	begun   bool
	buf     []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// So is what has been read so far, but for what was left out.
func (t *Reader) So() Summary { return t.summary }

// Next returns the next entry; the last one is End. All content of a File must have been
// taken before.
func (t *Reader) Next() (Entry, error) {
	if !t.begun {
		t.begun = true
		begin := make([]byte, len(head))
		if _, err := io.ReadFull(t.r, begin); err != nil || string(begin) != head {
			return Entry{}, early(err, broken("it does not begin as one"))
		}
	}
	k, err := t.r.ReadByte()
	if err != nil {
		return Entry{}, early(err, err)
	}
	e := Entry{Kind: Kind(k)}
	if err := t.fields(&e); err != nil {
		return e, early(err, err)
	}
	if err := t.order.next(e); err != nil {
		return e, err
	}
	t.summary.count(e.Kind)
	return e, nil
}

// fields reads what an entry of its kind has.
func (t *Reader) fields(e *Entry) (err error) {
	in := fieldReader{t: t, err: &err}
	switch e.Kind {
	case End:
	case Place, Dir:
		e.Name = in.text(MaxName)
	case Up:
		e.Mode, e.MtimeNS = in.mode(), in.signed()
	case File:
		e.Name = in.text(MaxName)
		e.Mode, e.MtimeNS = in.mode(), in.signed()
		e.Size, e.Number = int64(in.number(1<<63-1)), in.number(1<<63-1) //nolint:gosec // bounded
	case Link:
		e.Name, e.Number, e.Last = in.text(MaxName), in.number(1<<63-1), in.number(1) == 1
	case Symlink:
		e.Name, e.MtimeNS, e.Target = in.text(MaxName), in.signed(), in.text(MaxTarget)
	default:
		return broken("an unknown entry")
	}
	return err
}

// Content returns the next piece of the file that came last: a hole of so many bytes, or
// data, which is valid until the next call. Neither: the file is complete.
func (t *Reader) Content() (gap int64, piece []byte, err error) {
	if t.order.left == 0 {
		return 0, nil, nil
	}
	in := fieldReader{t: t, err: &err}
	k, err := t.r.ReadByte()
	if err != nil {
		return 0, nil, early(err, err)
	}
	var n uint64
	switch Kind(k) {
	case hole:
		n = in.number(1<<63 - 1)
	case data:
		n = in.number(MaxData)
	default:
		return 0, nil, broken("a file that is shorter than it says")
	}
	if err == nil {
		err = t.order.content(int64(n)) //nolint:gosec // bounded
	}
	if err != nil {
		return 0, nil, early(err, err)
	}
	if Kind(k) == hole {
		return int64(n), nil, nil //nolint:gosec // bounded
	}
	if t.buf == nil {
		t.buf = make([]byte, MaxData)
	}
	if _, err := io.ReadFull(t.r, t.buf[:n]); err != nil {
		return 0, nil, early(err, err)
	}
	t.summary.Bytes += int64(n) //nolint:gosec // bounded
	return 0, t.buf[:n], nil
}

// early is an error of reading: what ends before its end is broken.
func early(err, otherwise error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return broken("it ends too early")
	}
	return otherwise
}

// fieldReader reads fields until the first error.
type fieldReader struct {
	t   *Reader
	err *error
}

func (in fieldReader) number(most uint64) uint64 {
	if *in.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(in.t.r)
	if err == nil && n > most {
		err = broken("a number that is too large")
	}
	*in.err = err
	return n
}

func (in fieldReader) signed() int64 {
	if *in.err != nil {
		return 0
	}
	n, err := binary.ReadVarint(in.t.r)
	*in.err = err
	return n
}

func (in fieldReader) mode() uint32 { return uint32(in.number(maxMode)) } //nolint:gosec // bounded

func (in fieldReader) text(most uint64) string {
	n := in.number(most)
	if *in.err != nil {
		return ""
	}
	b := make([]byte, n)
	_, *in.err = io.ReadFull(in.t.r, b)
	return string(b)
}
