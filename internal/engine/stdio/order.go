package stdio

import (
	"slices"
	"sync"

	"pinfold/sandbox"
)

// order notes how the bytes of two streams follow each other, as they are read. It
// is safe for concurrent use, and does not grow with what a guest prints.
type order struct {
	mu     sync.Mutex
	pieces []sandbox.OutputPiece
	full   bool
}

func (o *order) add(stream string, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch last := len(o.pieces) - 1; {
	case o.full || n == 0:
	case last >= 0 && o.pieces[last].Stream == stream:
		o.pieces[last].Bytes += n
	case len(o.pieces) == sandbox.MaxOutputPieces:
		o.full = true // from here on nothing is next to what came before
	default:
		o.pieces = append(o.pieces, sandbox.OutputPiece{Stream: stream, Bytes: n})
	}
}

// tracker notes the first bytes of one stream: as they arrive, where somebody tells of
// that, and otherwise as they are written. It is safe for concurrent use.
type tracker struct {
	mu     sync.Mutex
	order  *order
	stream string
	left   int64 // of the first bytes, which are noted: how many have not arrived
	ahead  int64 // noted and not written yet
}

// init has a tracker note the first bytes of a stream (0 or 1) in an order.
func (t *tracker) init(o *order, stream int, first int64) {
	t.order, t.stream, t.left = o, streamNames[stream], first
}

var streamNames = [2]string{"stdout", "stderr"}

// arrived notes n bytes that will be written.
func (t *tracker) arrived(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if head := min(int64(n), t.left); head > 0 {
		t.left -= head
		t.ahead += head
		t.order.add(t.stream, head)
	}
}

// written notes n bytes of which nobody has told.
func (t *tracker) written(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := min(n, t.ahead)
	t.ahead -= told
	if head := min(n-told, t.left); head > 0 {
		t.left -= head
		t.order.add(t.stream, head)
	}
}

// known returns the pieces, where there is more than one.
func (o *order) known() []sandbox.OutputPiece {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pieces) < 2 {
		return nil
	}
	return slices.Clone(o.pieces)
}

// next tells whose turn it is for a reader that has got so far in both streams, and
// how many bytes of that one come before the other's. ok is false where that is not
// known: the reader has all that was noted.
func (o *order) next(at [2]int64) (stream int, n int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var end [2]int64
	for _, p := range o.pieces {
		i := 0
		if p.Stream == streamNames[1] {
			i = 1
		}
		if end[i] += p.Bytes; at[i] < end[i] {
			return i, end[i] - at[i], true
		}
	}
	return 0, 0, false
}
