package template

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// counted is a blob as it comes. It is counted and hashed, and ends when it is longer
// than it may be; one that is shorter than was said has no end but an error.
type counted struct {
	r    io.Reader
	size int64 // -1: not known
	most int64
	n    int64
	sum  hash.Hash
}

// boundError is an error that is said as it is.
type boundError struct{ error }

func newCounted(r io.Reader, size, most int64) *counted {
	return &counted{r: r, size: size, most: most, sum: sha256.New()}
}

var errLonger = errors.New("it is longer than was said")

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	_, _ = c.sum.Write(b[:n])
	switch {
	case c.size >= 0 && c.n > c.size:
		return n, errLonger
	case c.n > c.most: // nothing that is packed is larger than what it holds, by much
		return n, &boundError{tooMuch("has more bytes than are accepted")}
	case errors.Is(err, io.EOF) && c.n < c.size:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// maxWindow bounds what zstd keeps in memory, in bytes: the most that its command line
// program makes without being told to.
const maxWindow = 128 << 20

// compression is how a file is compressed.
type compression int

const (
	uncompressedFile compression = iota
	gzipFile
	zstdFile
)

// compressionOf tells it from the first four bytes.
func compressionOf(magic []byte) compression {
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		return gzipFile
	case len(magic) >= 4 && [4]byte(magic) == [4]byte{0x28, 0xb5, 0x2f, 0xfd}:
		return zstdFile
	}
	return uncompressedFile
}

// plainReader is what was compressed.
type plainReader struct {
	r     io.Reader
	sum   hash.Hash // of what was read; nil where nothing was compressed: it is the blob's
	close func()
}

// Read implements io.Reader.
func (p *plainReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if p.sum != nil {
		_, _ = p.sum.Write(b[:n])
	}
	return n, err
}

// uncompressed finds out how a blob is compressed, by its content.
func uncompressed(b *bufio.Reader) (*plainReader, error) {
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch compressionOf(magic) {
	case gzipFile:
		z, err := gzip.NewReader(b)
		return &plainReader{z, sha256.New(), func() {}}, err
	case zstdFile:
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return &plainReader{z, sha256.New(), z.Close}, nil
	}
	return &plainReader{b, nil, func() {}}, nil
}
