package stdio

import (
	"context"
	"fmt"
	"io"

	"pinfold/sandbox"
)

// Reader reads one output stream of a program from an offset on. While it is
// open the program waits for it, so close it. It is for one goroutine.
type Reader struct {
	s    *ring
	at   int64 // guarded by the ring's lock while attached
	buf  []byte
	done func() // may be nil
}

// open attaches a reader.
func (s *ring) open(offset int64, closed func()) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset < 0 {
		offset = s.first()
	}
	o := &Reader{s: s, at: offset, done: closed}
	if offset >= s.first() && offset <= s.total {
		s.readers[o] = true
	}
	return o
}

// Offset is where the next byte stands.
func (o *Reader) Offset() int64 { return o.at }

// maxChunk is the most that Next returns at once.
const maxChunk = 64 << 10

// Next returns the next piece and the offset of its first byte. The piece is
// valid until the next call. The error is io.EOF at the end of the stream, one
// of code offset_gone when the bytes are no longer kept or have not been
// written yet, or the context's.
func (o *Reader) Next(ctx context.Context) (chunk []byte, at int64, err error) {
	for {
		if more := o.wait(); more != nil {
			select {
			case <-more:
				continue
			case <-ctx.Done():
				return nil, o.at, context.Cause(ctx)
			}
		}
		if chunk, at, err = o.take(maxChunk); chunk != nil || err != nil {
			return chunk, at, err
		}
	}
}

// wait returns what is closed when there may be something to take, or nil when
// there is.
func (o *Reader) wait() <-chan struct{} {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.at != o.s.total || o.s.closed {
		return nil
	}
	return o.s.changed
}

// take is Next for at most so many bytes, and does not wait.
func (o *Reader) take(most int64) (chunk []byte, at int64, err error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if at, err := o.reachable(); err != nil {
		return nil, at, err
	}
	switch {
	case o.at < o.s.total:
		n := min(o.s.total-o.at, most)
		o.buf = o.s.appendFrom(o.buf[:0], o.at, n)
		at, o.at = o.at, o.at+n
		o.s.signal()
		return o.buf, at, nil
	case o.s.closed:
		return nil, o.at, io.EOF
	}
	return nil, o.at, nil
}

// reachable says whether the bytes from here on are there, or will be. Where they
// are not, the offset is the nearest that can be read from. The ring's lock is held.
func (o *Reader) reachable() (at int64, err error) {
	switch first := o.s.first(); {
	case o.at < first:
		return first, OffsetGone(o.at, first)
	case o.at > o.s.total:
		return o.s.total, OffsetGone(o.at, o.s.total)
	}
	return o.at, nil
}

// OffsetGone is the error of reading output at an offset that is not there; nearest is.
func OffsetGone(asked, nearest int64) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeOffsetGone, Field: "offset",
		Message: fmt.Sprintf("the output from byte %d on is not there; the nearest that is begins at %d", asked, nearest),
		Hint:    fmt.Sprintf("go on from offset %d", nearest),
	}
}

// Close lets the program go on without this reader.
func (o *Reader) Close() {
	if o.done != nil {
		o.done()
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.s.readers[o] {
		delete(o.s.readers, o)
		o.s.signal()
	}
}
