package filetree

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Writer writes a stream. After an error all calls fail.
type Writer struct {
	w       *bufio.Writer
	order   order
	summary Summary
	err     error
	scratch [binary.MaxVarintLen64]byte
}

// NewWriter returns a Writer to w. End must be called.
func NewWriter(w io.Writer) *Writer {
	t := &Writer{w: bufio.NewWriterSize(w, MaxData)}
	_, t.err = t.w.WriteString(head)
	return t
}

// Entry writes an entry. The content of a File follows.
func (t *Writer) Entry(e Entry) error {
	if t.err == nil {
		t.err = t.order.next(e)
	}
	if t.err != nil {
		return t.err
	}
	t.summary.count(e.Kind)
	t.kind(e.Kind)
	switch e.Kind {
	case Place, Dir:
		t.text(e.Name)
	case Up:
		t.number(uint64(e.Mode))
		t.signed(e.MtimeNS)
	case File:
		t.text(e.Name)
		t.number(uint64(e.Mode))
		t.signed(e.MtimeNS)
		t.number(uint64(e.Size)) //nolint:gosec // checked: not negative
		t.number(e.Number)
	case Link:
		t.text(e.Name)
		t.number(e.Number)
		t.flag(e.Last)
	case Symlink:
		t.text(e.Name)
		t.signed(e.MtimeNS)
		t.text(e.Target)
	}
	return t.err
}

// Data writes a piece of a file's content, of at most MaxData bytes.
func (t *Writer) Data(p []byte) error {
	if len(p) > MaxData {
		t.err = broken("a piece that is too large")
	}
	if t.err == nil {
		t.err = t.order.content(int64(len(p)))
	}
	t.summary.Bytes += int64(len(p))
	t.kind(data)
	t.number(uint64(len(p)))
	t.write(p)
	return t.err
}

// Hole writes a hole of a file.
func (t *Writer) Hole(n int64) error {
	if t.err == nil {
		t.err = t.order.content(n)
	}
	t.kind(hole)
	t.number(uint64(n)) //nolint:gosec // checked: not negative
	return t.err
}

// LeaveOut counts something that is not in the stream.
func (t *Writer) LeaveOut() { t.summary.Left++ }

// So is what the stream holds so far.
func (t *Writer) So() Summary { return t.summary }

// End ends the stream and says what it holds.
func (t *Writer) End() (Summary, error) {
	if err := t.Entry(Entry{Kind: End}); err != nil {
		return t.summary, err
	}
	return t.summary, t.w.Flush()
}

func (t *Writer) kind(k Kind) { t.write([]byte{byte(k)}) }

func (t *Writer) flag(b bool) {
	if b {
		t.write([]byte{1})
		return
	}
	t.write([]byte{0})
}

func (t *Writer) number(n uint64) { t.write(binary.AppendUvarint(t.scratch[:0], n)) }
func (t *Writer) signed(n int64)  { t.write(binary.AppendVarint(t.scratch[:0], n)) }

func (t *Writer) text(s string) {
	t.number(uint64(len(s)))
	t.write([]byte(s))
}

func (t *Writer) write(p []byte) {
	if t.err == nil {
		_, t.err = t.w.Write(p)
	}
}
