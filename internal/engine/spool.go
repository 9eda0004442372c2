package engine

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"pinfold/sandbox"
)

// stallTimeout is how long the writer of a stream waits for a reader that does
// not read. Then the reader loses its place and the program goes on.
const stallTimeout = 30 * time.Second

// spool keeps the last size bytes of an output stream for readers that come and go.
// While a reader is attached the writer waits for it, so that it misses nothing
// and the spool never grows; without readers the oldest bytes are overwritten.
// It is safe for concurrent use.
type spool struct {
	size  int64
	stall time.Duration
	order *noting // of the first size bytes; may be nil

	mu      sync.Mutex
	ring    []byte // see put
	total   int64  // bytes written in all
	closed  bool
	readers map[*Output]bool
	changed chan struct{} // closed and replaced at every change
}

func newSpool(size int64) *spool {
	return &spool{size: size, stall: stallTimeout, readers: map[*Output]bool{}, changed: make(chan struct{})}
}

// signal wakes everybody who waits. The lock is held.
func (s *spool) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// first is the offset of the first byte that is still kept.
func (s *spool) first() int64 { return max(0, s.total-s.size) }

// Write implements io.Writer. It is called from one goroutine and never fails.
func (s *spool) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		s.mu.Lock()
		if s.closed { // what comes too late would push out what readers have not had
			s.mu.Unlock()
			return n, nil
		}
		room := s.room()
		if room == 0 {
			s.waitForReaders()
			s.mu.Unlock()
			continue
		}
		k := min(room, int64(len(p)))
		s.order.written(k)
		s.put(p[:k])
		p = p[k:]
		s.signal()
		s.mu.Unlock()
	}
	return n, nil
}

// room is how much may be written without overwriting what a reader has not had.
func (s *spool) room() int64 {
	slowest := s.total
	for r := range s.readers {
		slowest = min(slowest, r.at)
	}
	if len(s.readers) == 0 {
		return s.size
	}
	return s.size - (s.total - slowest)
}

// waitForReaders waits until a reader has moved or gone. When none does for
// long, those that stand in the way are detached.
func (s *spool) waitForReaders() {
	changed := s.changed
	s.mu.Unlock()
	timer := time.NewTimer(s.stall)
	defer timer.Stop()
	select {
	case <-changed:
		s.mu.Lock()
	case <-timer.C:
		s.mu.Lock()
		for r := range s.readers {
			if s.total-r.at >= s.size {
				delete(s.readers, r)
			}
		}
		s.signal()
	}
}

// ringChunk is the least that the ring has.
const ringChunk = 4 << 10

// put writes at most size bytes into the ring. The byte at an offset lies at the
// offset modulo the ring's length, which grows to size before anything is dropped.
func (s *spool) put(p []byte) {
	if need := s.total + int64(len(p)); need > int64(len(s.ring)) && int64(len(s.ring)) < s.size {
		grown := make([]byte, min(s.size, max(2*int64(len(s.ring)), need, ringChunk)))
		copy(grown, s.ring)
		s.ring = grown
	}
	n := copy(s.ring[s.total%int64(len(s.ring)):], p)
	copy(s.ring, p[n:])
	s.total += int64(len(p))
}

// appendFrom appends n bytes from an offset on, all of which are kept.
func (s *spool) appendFrom(to []byte, at, n int64) []byte {
	if n == 0 {
		return to
	}
	from := at % int64(len(s.ring))
	straight := min(n, int64(len(s.ring))-from)
	to = append(to, s.ring[from:from+straight]...)
	return append(to, s.ring[:n-straight]...)
}

// kept returns all that is kept, and whether anything came before it.
func (s *spool) kept() (b []byte, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.first()
	return s.appendFrom(make([]byte, 0, s.total-first), first, s.total-first), first > 0
}

// last returns the last bytes, at most n.
func (s *spool) last(n int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.total-s.first())
	return s.appendFrom(nil, s.total-n, n)
}

// close says that nothing more comes.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.signal()
	}
}

// written returns how many bytes have come.
func (s *spool) written() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// held returns how much memory the spool takes.
func (s *spool) held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.ring))
}

// Output reads one output stream of a process from an offset on. While it is
// open the process waits for it, so close it. It is for one goroutine.
type Output struct {
	s    *spool
	at   int64 // guarded by the spool's lock while attached
	buf  []byte
	done func() // may be nil
}

// open attaches a reader. A negative offset is that of the first byte kept.
func (s *spool) open(offset int64) *Output {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset < 0 {
		offset = s.first()
	}
	o := &Output{s: s, at: offset}
	if offset >= s.first() && offset <= s.total {
		s.readers[o] = true
	}
	return o
}

// Offset is where the next byte stands.
func (o *Output) Offset() int64 { return o.at }

// outputChunk is the most that Next returns at once.
const outputChunk = 64 << 10

// Next returns the next piece and the offset of its first byte. The piece is
// valid until the next call. The error is io.EOF at the end of the stream, one
// of code offset_gone when the bytes are no longer kept or have not been
// written yet, or the context's.
func (o *Output) Next(ctx context.Context) (chunk []byte, at int64, err error) {
	for {
		if more := o.wait(); more != nil {
			select {
			case <-more:
				continue
			case <-ctx.Done():
				return nil, o.at, context.Cause(ctx)
			}
		}
		if chunk, at, err = o.take(outputChunk); chunk != nil || err != nil {
			return chunk, at, err
		}
	}
}

// wait returns what is closed when there may be something to take, or nil when
// there is.
func (o *Output) wait() <-chan struct{} {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.at != o.s.total || o.s.closed {
		return nil
	}
	return o.s.changed
}

// take is Next for at most so many bytes, and does not wait.
func (o *Output) take(most int64) (chunk []byte, at int64, err error) {
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
// are not, the offset is the nearest that can be read from. The spool's lock is held.
func (o *Output) reachable() (at int64, err error) {
	switch first := o.s.first(); {
	case o.at < first:
		return first, offsetGone(o.at, first)
	case o.at > o.s.total:
		return o.s.total, offsetGone(o.at, o.s.total)
	}
	return o.at, nil
}

func offsetGone(asked, first int64) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeOffsetGone, Field: "offset",
		Message: fmt.Sprintf("the output from byte %d on is not there; the nearest that is begins at %d", asked, first),
		Hint:    fmt.Sprintf("go on from offset %d", first),
	}
}

// Close lets the process go on without this reader.
func (o *Output) Close() {
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
