package warm

import (
	"bytes"
	"io"
	"sync"
)

// output is one of an interpreter's output streams. It passes on what is written once
// there is a program. Before, it looks for the line that says that the interpreter is
// ready, and keeps the last of the rest, to say why one is not.
type output struct {
	mu     sync.Mutex
	to     io.Writer // nil before there is a program
	marker []byte
	ready  chan struct{}
	kept   []byte
}

// maxKept is how much is kept of what loading modules prints, in bytes.
const maxKept = 4 << 10

func newOutput(marker string) *output {
	return &output{marker: []byte(marker), ready: make(chan struct{})}
}

// Write implements io.Writer. It is called from one goroutine and never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	to := o.to
	if to == nil {
		o.keep(p)
	}
	o.mu.Unlock()
	if to != nil {
		_, _ = to.Write(p)
	}
	return len(p), nil
}

// keep searches for the marker in what has come so far. The lock is held.
func (o *output) keep(p []byte) {
	select {
	case <-o.ready:
		return // what comes between being ready and having a program is nobody's
	default:
	}
	o.kept = append(o.kept, p...)
	if len(o.marker) > 0 && bytes.Contains(o.kept, o.marker) {
		close(o.ready)
		return
	}
	if over := len(o.kept) - maxKept; over > 0 {
		o.kept = append(o.kept[:0], o.kept[over:]...)
	}
}

func (o *output) connect(to io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = to
}

// before returns what came before there was a program, or its last part.
func (o *output) before() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.kept)
}
