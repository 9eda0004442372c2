package stdio

import (
	"io"
	"sync"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// stallTimeout is how long the writer of a stream waits for a reader that does
// not read. Then the reader loses its place and the program goes on.
const stallTimeout = 30 * time.Second

// Spool keeps the last bytes of both output streams of a program for readers that come
// and go. While a reader of a stream is attached the writer waits for it, so that it
// misses nothing and the spool never grows; without readers the oldest bytes are
// overwritten. It is safe for concurrent use.
type Spool struct {
	order   order // of the first bytes
	streams [2]ring
}

// NewSpool returns one that keeps size bytes of each stream.
func NewSpool(size int64) *Spool {
	s := &Spool{}
	for i := range s.streams {
		r := &s.streams[i]
		r.size, r.stall, r.readers, r.changed = size, stallTimeout, map[*Reader]bool{}, make(chan struct{})
		r.order.init(&s.order, i, size)
	}
	return s
}

// Writer returns what a stream is written to, from one goroutine. It never fails.
func (s *Spool) Writer(stream uint8) io.Writer { return s.of(stream) }

// Arrived notes that n bytes of a stream have come and will be written.
func (s *Spool) Arrived(stream uint8, n int) { s.of(stream).order.arrived(n) }

func (s *Spool) of(stream uint8) *ring { return &s.streams[stream-wire.Stdout] }

// Open attaches a reader of a stream. A negative offset is that of the first byte kept.
// closed, which may be nil, is called when the reader is closed.
func (s *Spool) Open(stream uint8, offset int64, closed func()) *Reader {
	return s.of(stream).open(offset, closed)
}

// Kept returns all that is kept of a stream, and whether anything came before it.
func (s *Spool) Kept(stream uint8) (b []byte, cut bool) { return s.of(stream).kept() }

// Last returns the last bytes of a stream, at most n.
func (s *Spool) Last(stream uint8, n int64) []byte { return s.of(stream).last(n) }

// Order is how the pieces of both streams follow each other from their first bytes on,
// as far as that was noted.
func (s *Spool) Order() []sandbox.OutputPiece { return s.order.known() }

// Written is how many bytes have come in each stream.
func (s *Spool) Written() [2]int64 {
	return [2]int64{s.streams[0].written(), s.streams[1].written()}
}

// Held is how much memory the spool takes, in bytes.
func (s *Spool) Held() int64 { return s.streams[0].held() + s.streams[1].held() }

// Close says that nothing more comes. What is written from now on is dropped, and
// nothing waits for a reader any more.
func (s *Spool) Close() {
	for i := range s.streams {
		s.streams[i].close()
	}
}

// Drop ends the spool and forgets what it keeps; what is known of it in numbers stays.
func (s *Spool) Drop() {
	for i := range s.streams {
		s.streams[i].drop()
	}
}

// ring keeps the last size bytes of one stream.
type ring struct {
	size  int64
	stall time.Duration
	order tracker

	mu      sync.Mutex
	bytes   []byte // see put
	total   int64  // written in all
	closed  bool
	readers map[*Reader]bool
	changed chan struct{} // closed and replaced at every change
}

// signal wakes everybody who waits. The lock is held.
func (s *ring) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// first is the offset of the first byte that is still kept.
func (s *ring) first() int64 { return max(0, s.total-s.size) }

// Write implements io.Writer. It is called from one goroutine and never fails.
func (s *ring) Write(p []byte) (int, error) {
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
func (s *ring) room() int64 {
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
func (s *ring) waitForReaders() {
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

// ringChunk is the least that a ring has, in bytes.
const ringChunk = 4 << 10

// put writes at most size bytes into the ring. The byte at an offset lies at the
// offset modulo the ring's length, which grows to size before anything is dropped.
func (s *ring) put(p []byte) {
	if need := s.total + int64(len(p)); need > int64(len(s.bytes)) && int64(len(s.bytes)) < s.size {
		grown := make([]byte, min(s.size, max(2*int64(len(s.bytes)), need, ringChunk)))
		copy(grown, s.bytes)
		s.bytes = grown
	}
	n := copy(s.bytes[s.total%int64(len(s.bytes)):], p)
	copy(s.bytes, p[n:])
	s.total += int64(len(p))
}

// appendFrom appends n bytes from an offset on, all of which are kept.
func (s *ring) appendFrom(to []byte, at, n int64) []byte {
	if n == 0 {
		return to
	}
	from := at % int64(len(s.bytes))
	straight := min(n, int64(len(s.bytes))-from)
	to = append(to, s.bytes[from:from+straight]...)
	return append(to, s.bytes[:n-straight]...)
}

// kept returns all that is kept, and whether anything came before it.
func (s *ring) kept() (b []byte, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.first()
	return s.appendFrom(make([]byte, 0, s.total-first), first, s.total-first), first > 0
}

// last returns the last bytes, at most n.
func (s *ring) last(n int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.total-s.first())
	return s.appendFrom(nil, s.total-n, n)
}

// close says that nothing more comes.
func (s *ring) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.signal()
	}
}

// drop closes the ring and forgets its bytes.
func (s *ring) drop() {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.size = nil, 0
}

// written returns how many bytes have come.
func (s *ring) written() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// held returns how much memory the spool takes.
func (s *ring) held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.bytes))
}
