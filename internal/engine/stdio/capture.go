package stdio

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Capture keeps the first bytes of both output streams of a program, counts the rest,
// and passes what it keeps on to live readers. Each stream is written from one goroutine;
// all else is safe for concurrent use.
type Capture struct {
	order   order
	streams [2]head
}

// NewCapture returns one that keeps limit bytes of each stream. The live readers may be
// nil. One that fails is passed nothing more.
func NewCapture(limit int64, stdout, stderr io.Writer) *Capture {
	c := &Capture{}
	for i, live := range []io.Writer{stdout, stderr} {
		c.streams[i].limit, c.streams[i].live = limit, live
		c.streams[i].order.init(&c.order, i, limit)
	}
	return c
}

// Recorded returns what a result has of its program's output, byte for byte: of a
// stream that was no valid UTF-8, nothing.
func Recorded(r *sandbox.Result) *Capture {
	c := &Capture{order: order{pieces: r.OutputOrder}}
	for i, text := range []string{r.Stdout, r.Stderr} {
		if !strings.Contains(text, "\uFFFD") {
			c.streams[i].kept = []byte(text)
		}
	}
	return c
}

// Writer returns what a stream is written to. It never fails.
func (c *Capture) Writer(stream uint8) io.Writer { return &c.streams[stream-wire.Stdout] }

// Arrived notes that n bytes of a stream have come and will be written.
func (c *Capture) Arrived(stream uint8, n int) { c.streams[stream-wire.Stdout].order.arrived(n) }

// Total is how many bytes were written to a stream.
func (c *Capture) Total(stream uint8) int64 { return c.streams[stream-wire.Stdout].seen.Load() }

// Truncated says whether more was written to a stream than is kept.
func (c *Capture) Truncated(stream uint8) bool {
	return c.Total(stream) > c.streams[stream-wire.Stdout].limit
}

// Text returns what is kept of a stream, as valid UTF-8.
func (c *Capture) Text(stream uint8) string {
	h := &c.streams[stream-wire.Stdout]
	h.mu.Lock()
	defer h.mu.Unlock()
	return Text(h.kept)
}

// Last returns the last of the bytes that are kept of a stream, at most n.
func (c *Capture) Last(stream uint8, n int) []byte {
	h := &c.streams[stream-wire.Stdout]
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.kept[max(0, len(h.kept)-n):])
}

// Exact is what the text of the two streams does not tell: how they follow each other
// and, if raw, their bytes.
func (c *Capture) Exact(raw bool) sandbox.ExactOutput {
	e := sandbox.ExactOutput{OutputOrder: c.order.known()}
	if raw {
		e.StdoutRaw, e.StderrRaw = c.streams[0].bytes(), c.streams[1].bytes()
	}
	return e
}

// Kept is how many bytes of each stream are kept. Of a nil Capture there are none.
func (c *Capture) Kept() (n [2]int64) {
	if c == nil {
		return n
	}
	for i := range c.streams {
		h := &c.streams[i]
		h.mu.Lock()
		n[i] = int64(len(h.kept))
		h.mu.Unlock()
	}
	return n
}

// Next returns what was written next, for a reader that has got so far in both streams:
// a piece that nobody changes any more, and of which stream it is. Where there is none,
// more is closed when there may be. ended says that nothing comes any more. A nil
// Capture has nothing, and no news.
func (c *Capture) Next(at [2]int64, ended bool) (stream uint8, chunk []byte, more [2]<-chan struct{}) {
	if c == nil {
		return 0, nil, more
	}
	var chunks [2][]byte
	for i := range c.streams {
		chunks[i], more[i] = c.streams[i].from(at[i])
	}
	if len(chunks[0])+len(chunks[1]) == 0 {
		return 0, nil, more
	}
	// What comes is noted before it comes: see Follower.turn.
	next, most := 0, int64(maxChunk)
	if i, n, ok := c.order.next(at); ok {
		if len(chunks[i]) == 0 {
			chunks[i], more[i] = c.streams[i].from(at[i])
		}
		if len(chunks[i]) == 0 && !ended { // it is on its way
			more[1-i] = nil
			return 0, nil, more
		}
		next, most = i, min(n, most)
	}
	if len(chunks[next]) == 0 {
		next, most = 1-next, maxChunk
	}
	return wire.Stdout + uint8(next), chunks[next][:min(int64(len(chunks[next])), most)], more //nolint:gosec // 0 or 1
}

// head is the first bytes of one stream.
type head struct {
	limit int64
	live  io.Writer // may be nil
	stuck bool      // the live reader failed: keep counting, stop passing on
	order tracker   // of what is kept
	seen  atomic.Int64

	mu   sync.Mutex
	kept []byte
	news chan struct{} // closed when more is kept; nil: nobody waits for it
}

// Write never fails: a live reader that is gone must not look like the
// program's fault.
func (h *head) Write(b []byte) (int, error) {
	seen := h.seen.Add(int64(len(b))) - int64(len(b))
	room := min(int64(len(b)), max(0, h.limit-seen))
	part := b[:room]
	if len(part) == 0 {
		return len(b), nil
	}
	h.mu.Lock()
	h.order.written(int64(len(part)))
	h.kept = append(h.kept, part...)
	if h.news != nil {
		close(h.news)
		h.news = nil
	}
	h.mu.Unlock()
	if h.live != nil && !h.stuck {
		if _, err := h.live.Write(part); err != nil {
			h.stuck = true
		}
	}
	return len(b), nil
}

// from returns what is kept from an offset on, which nobody changes any more,
// and the channel that is closed when there is more.
func (h *head) from(at int64) (chunk []byte, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.news == nil {
		h.news = make(chan struct{})
	}
	if at < int64(len(h.kept)) {
		chunk = h.kept[at:len(h.kept):len(h.kept)]
	}
	return chunk, h.news
}

func (h *head) bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.kept)
}

// Text is output as text: valid UTF-8.
func Text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
