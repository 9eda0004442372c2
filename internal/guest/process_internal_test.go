package guest

import (
	"io"
	"testing"
)

// A program that was started, and whose machine died at once, was started: what ended
// it is asked of the machine, and the answer is not that it never ran.
func TestStartBeforeTheEndOfTheConnection(t *testing.T) {
	for range 100 { // both are ready: the choice must not be by chance
		p := &Process{c: &channel{over: make(chan struct{}), err: io.ErrUnexpectedEOF}, started: make(chan struct{})}
		close(p.c.over)
		if err := p.awaitStart(t.Context()); err == nil {
			t.Fatal("a program of which nothing was heard was started")
		}
		close(p.started)
		if err := p.awaitStart(t.Context()); err != nil {
			t.Fatalf("a program that was started was not: %v", err)
		}
	}
}
