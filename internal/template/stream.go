package template

import (
	"bufio"
	"context"
	"errors"
	"io"
)

// stream is a layer's tar as it comes out of its blob. A goroutine of its own reads,
// hashes and uncompresses (see producer), and is a few buffers ahead, so that the disk
// does not wait for that nor that for the disk. The stream itself belongs to one
// goroutine.
//
// The first thing that was wrong is kept, whatever the archive's reader makes of it.
type stream struct {
	ctx  context.Context //nolint:containedctx // the call's own
	full <-chan chunk
	free chan<- []byte
	stop chan struct{}
	tell func(came int64) // how much of the blob was used so far; may be nil

	last   chunk
	unread []byte // of last
	err    error
}

// chunk is a piece of the tar.
type chunk struct {
	buffer []byte
	n      int   // bytes of it
	came   int64 // bytes of the blob so far
	err    error // what is behind those bytes; io.EOF when all was as it should be
	// The hashes of the whole blob and of the whole tar, when err is io.EOF.
	blob, tar ID
}

// ahead is how many buffers there are.
const ahead = 4

// newStream begins to read a blob of size bytes; -1 when that is not known. most is how
// many bytes its tar may have, ratio how many for each byte of the blob. The goroutine
// that reads r ends with r, or after close with the read that it is in.
func newStream(ctx context.Context, r io.Reader, size, most, ratio int64) *stream {
	full, free, stop := make(chan chunk), make(chan []byte, ahead), make(chan struct{})
	for range ahead {
		free <- make([]byte, copyBuffer)
	}
	p := &producer{blob: newCounted(r, size, most), most: most, ratio: ratio}
	go p.run(full, free, stop)
	return &stream{ctx: ctx, full: full, free: free, stop: stop}
}

// close ends the stream. It is called once.
func (s *stream) close() { close(s.stop) }

// failure is what was wrong with the blob, or that the context ended.
func (s *stream) failure() error { return s.err }

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	for len(s.unread) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		if s.last.err != nil { // io.EOF: all others are in s.err
			return 0, io.EOF
		}
		s.next()
	}
	n := copy(b, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

// next takes the next piece.
func (s *stream) next() {
	if s.last.buffer != nil {
		s.free <- s.last.buffer // there is room for all
		s.last = chunk{}
	}
	select {
	case <-s.ctx.Done():
		s.err = s.ctx.Err()
	case s.last = <-s.full:
		s.unread = s.last.buffer[:s.last.n]
		if s.tell != nil {
			s.tell(s.last.came)
		}
		if !errors.Is(s.last.err, io.EOF) {
			s.err = s.last.err
		}
	}
}

// finish reads what is left behind the archive's end, and compares the hashes; an empty
// one is not known. It returns the tar's.
func (s *stream) finish(blob, inner string) (ID, error) {
	for s.last.err == nil && s.err == nil {
		s.next()
	}
	switch {
	case s.err != nil:
		return "", s.err
	case blob != "" && string(s.last.blob) != blob:
		return "", invalid("has a layer that is not the one that was named: its digest is %s, not %s", s.last.blob, blob)
	case inner != "" && string(s.last.tar) != inner:
		return "", invalid("has a layer that is not the one that its configuration names: its digest is %s, not %s", s.last.tar, inner)
	}
	return s.last.tar, nil
}

// producer is the other end of a stream.
type producer struct {
	blob  *counted
	most  int64
	ratio int64
	out   int64
}

// run reads to the end.
func (p *producer) run(full chan<- chunk, free <-chan []byte, stop <-chan struct{}) {
	plain, err := uncompressed(bufio.NewReaderSize(p.blob, copyBuffer/2))
	if err == nil {
		defer plain.close()
	}
	for {
		var c chunk
		select {
		case <-stop:
			return
		case c.buffer = <-free:
		}
		if err == nil {
			c.n, err = fill(plain, c.buffer)
			p.out += int64(c.n)
		}
		c.came, c.err = p.blob.n, p.judge(err)
		if errors.Is(c.err, io.EOF) {
			c.blob, c.tar, c.err = p.hashes(plain)
		}
		select {
		case <-stop:
			return
		case full <- c:
		}
		if c.err != nil {
			return
		}
	}
}

// fill reads until the buffer is full.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// judge says what is wrong so far.
func (p *producer) judge(err error) error {
	known := new(boundError)
	switch {
	case errors.As(err, &known):
		return known.error
	case p.out > p.most:
		return tooMuch("has more bytes than are accepted")
	case p.out > ratioFree && p.out/p.ratio > p.blob.n:
		return tooMuch("grows to more than %d times its size", p.ratio)
	case err != nil && !errors.Is(err, io.EOF):
		return unwhole(err)
	}
	return err
}

// unwhole is the error for a blob that is not what it should be. What a registry has to
// say of it is said by the registry's reader.
func unwhole(err error) error {
	if known := known(err); known != nil {
		return known
	}
	return invalid("has a layer that did not come whole: %s", ended(err))
}

// hashes reads what is behind what was compressed, which belongs to the blob, and
// returns the hashes of both.
func (p *producer) hashes(plain *plainReader) (blob, tar ID, err error) {
	if _, err := io.Copy(io.Discard, p.blob); err != nil {
		return "", "", p.judge(err)
	}
	blob = idOf(p.blob.sum)
	if plain.sum == nil {
		return blob, blob, io.EOF
	}
	return blob, idOf(plain.sum), io.EOF
}
