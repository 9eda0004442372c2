package cli

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"
)

// flushGrace is how long a cancelled run still tries to deliver its output.
const flushGrace = 250 * time.Millisecond

// stream carries a program's output to one of our own descriptors. Writing
// never blocks, so a slow reader costs the program none of its time; what
// waits is bounded by limits.output_bytes, at which the engine cuts.
type stream struct {
	mu      sync.Mutex
	wake    *sync.Cond
	waiting [][]byte
	closed  bool
	broken  error // the error that ended the writing
	midLine bool  // the last byte was not the end of a line
	done    chan struct{}
}

// newStream starts the goroutine that writes to w. When nobody reads w any
// more, gone is called and the rest is thrown away.
func newStream(w io.Writer, gone func()) *stream {
	s := &stream{done: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	go s.pump(w, gone)
	return s
}

// Write implements io.Writer. It keeps a copy of p and never fails.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil && !s.closed && len(p) > 0 {
		s.midLine = p[len(p)-1] != '\n'
		s.waiting = append(s.waiting, append([]byte(nil), p...))
		s.wake.Signal()
	}
	return len(p), nil
}

func (s *stream) pump(w io.Writer, gone func()) {
	defer close(s.done)
	for {
		chunks, more := s.next()
		for _, chunk := range chunks {
			if _, err := w.Write(chunk); err != nil {
				s.giveUp(err)
				if errors.Is(err, syscall.EPIPE) {
					gone()
				}
				return
			}
		}
		if !more {
			finishVisible(w)
			return
		}
	}
}

// next waits for output. more is false when nothing comes after it.
func (s *stream) next() (chunks [][]byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && !s.closed {
		s.wake.Wait()
	}
	chunks, s.waiting = s.waiting, nil
	return chunks, !s.closed
}

func (s *stream) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.waiting, s.midLine = err, nil, false
}

// state says whether what was written ends in the middle of a line, and which
// error ended the writing, if one did.
func (s *stream) state() (midLine bool, broken error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.midLine, s.broken
}

// finish waits until everything is delivered. After ctx has ended it waits
// only a moment longer.
func (s *stream) finish(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.wake.Signal()
	s.mu.Unlock()
	select {
	case <-s.done:
		return
	case <-ctx.Done():
	}
	select {
	case <-s.done:
	case <-time.After(flushGrace):
	}
}
