package archive

import (
	"errors"
	"io"
	"strings"
)

// input is an archive as it comes. It counts, and keeps the error of the
// reading apart from that of the format.
type input struct {
	r    io.Reader
	n    int64
	head [4]byte // the first
	err  error
}

// Read implements io.Reader.
func (i *input) Read(b []byte) (int, error) {
	n, err := i.r.Read(b)
	if i.n < int64(len(i.head)) {
		copy(i.head[i.n:], b[:n])
	}
	i.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		i.err = err
	}
	return n, err
}

// format is the one that the first bytes are a sign of, or "".
func (i *input) format() Format {
	switch head := string(i.head[:]); {
	case strings.HasPrefix(head, "\x1f\x8b"):
		return TarGzip
	case head == "PK\x03\x04":
		return Zip
	}
	return ""
}

// meter bounds what an archive unfolds to, headers and padding included.
type meter struct {
	r    io.Reader
	in   *input
	n    int64
	lim  Limits
	over error // the rule that was broken
}

// Read implements io.Reader.
func (m *meter) Read(b []byte) (int, error) {
	if m.over != nil {
		return 0, m.over
	}
	n, err := m.r.Read(b)
	m.n += int64(n)
	switch {
	case m.n > m.lim.Bytes+m.lim.headers():
		m.over = tooMuch("unfolds to more than is accepted")
	case m.n > ratioFree && m.n/m.lim.Ratio > m.in.n:
		m.over = tooMuch("is compressed too strongly")
	}
	if m.over != nil {
		return 0, m.over
	}
	return n, err
}
