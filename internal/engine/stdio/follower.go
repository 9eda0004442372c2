package stdio

import (
	"context"
	"io"

	"pinfold/internal/wire"
)

// Follower reads both output streams of a program in the order in which they were
// written, as far as that was noted. While it is open the program waits for it, so
// close it. It is for one goroutine.
type Follower struct {
	streams [2]*Reader
	order   *order
	at      [2]int64 // what was passed on
	ended   [2]bool
}

// Follow makes one follower of a reader of each stream, which it owns from now on.
func (s *Spool) Follow(stdout, stderr *Reader) *Follower {
	return &Follower{streams: [2]*Reader{stdout, stderr}, order: &s.order, at: [2]int64{stdout.at, stderr.at}}
}

// Begin returns the offsets from which on the streams are read. An error is of code
// offset_gone: what is asked for cannot be read.
func (o *Follower) Begin() (at [2]int64, err error) {
	for _, out := range o.streams {
		out.s.mu.Lock()
		_, err := out.reachable()
		out.s.mu.Unlock()
		if err != nil {
			return at, err
		}
	}
	return o.at, nil
}

// Next returns the next piece, of which stream it is, and the offset of its first byte there. The piece is valid until the next call. The error
// is io.EOF at the end of both, one of code offset_gone where this reader has lost
// its place, or the context's.
func (o *Follower) Next(ctx context.Context) (stream uint8, chunk []byte, at int64, err error) {
	for {
		i, most, err := o.turn(ctx)
		if err != nil {
			return 0, nil, 0, err
		}
		stream = wire.Stdout + uint8(i) //nolint:gosec // 0 or 1
		chunk, at, err = o.streams[i].take(most)
		switch {
		case err == io.EOF: //nolint:errorlint // take's own
			o.ended[i] = true
			o.streams[i].Close() // the program need not wait for this stream any more
		case err != nil:
			return stream, nil, at, err
		default:
			o.at[i] = at + int64(len(chunk))
			return stream, chunk, at, nil
		}
	}
}

// turn waits until there is something to take, and says from which stream, and how
// much of it at most.
func (o *Follower) turn(ctx context.Context) (stream int, most int64, err error) {
	for {
		var more [2]<-chan struct{}
		ready := -1
		for i, s := range o.streams {
			if o.ended[i] {
				continue
			}
			if more[i] = s.wait(); more[i] == nil && ready < 0 {
				ready = i
			}
		}
		if o.ended[0] && o.ended[1] {
			return 0, 0, io.EOF
		}
		if ready >= 0 {
			// What comes is noted before it comes. So where this does not know, the
			// order was not noted, and where it knows, the bytes are there or on their
			// way.
			i, n, ok := o.order.next(o.at)
			if !ok || o.ended[i] {
				return ready, maxChunk, nil
			}
			coming := o.streams[i].wait()
			if coming == nil {
				return i, min(n, maxChunk), nil
			}
			more = [2]<-chan struct{}{coming}
		}
		select {
		case <-more[0]:
		case <-more[1]:
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
}

// Close lets the program go on without this reader.
func (o *Follower) Close() {
	for _, s := range o.streams {
		s.Close()
	}
}
