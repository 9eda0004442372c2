package engine

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// capture keeps the first bytes of an output stream, counts the rest, and
// passes what it keeps on to a live reader. Write is called from one goroutine;
// total may be called from another.
type capture struct {
	limit int64
	live  io.Writer // may be nil
	order *noting   // of what is kept; may be nil

	mu    sync.Mutex
	kept  []byte
	news  chan struct{} // closed when more is kept; nil: nobody waits for it
	seen  atomic.Int64
	stuck bool // the live reader failed: keep counting, stop passing on
}

func newCapture(limit int64, live io.Writer) *capture {
	return &capture{limit: limit, live: live}
}

// Write never fails: a live reader that is gone must not look like the
// program's fault.
func (c *capture) Write(b []byte) (int, error) {
	seen := c.seen.Add(int64(len(b))) - int64(len(b))
	room := min(int64(len(b)), max(0, c.limit-seen))
	part := b[:room]
	if len(part) == 0 {
		return len(b), nil
	}
	c.mu.Lock()
	c.order.written(int64(len(part)))
	c.kept = append(c.kept, part...)
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
	c.mu.Unlock()
	if c.live != nil && !c.stuck {
		if _, err := c.live.Write(part); err != nil {
			c.stuck = true
		}
	}
	return len(b), nil
}

// from returns what is kept from an offset on, which nobody changes any more,
// and the channel that is closed when there is more.
func (c *capture) from(at int64) (chunk []byte, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news == nil {
		c.news = make(chan struct{})
	}
	if at < int64(len(c.kept)) {
		chunk = c.kept[at:len(c.kept):len(c.kept)]
	}
	return chunk, c.news
}

// size is how many bytes are kept.
func (c *capture) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.kept))
}

func (c *capture) total() int64    { return c.seen.Load() }
func (c *capture) truncated() bool { return c.total() > c.limit }

// bytes returns what was kept.
func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.kept)
}

// text returns what was kept as valid UTF-8.
func (c *capture) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return validText(c.kept)
}

// validText is output as text.
func validText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
