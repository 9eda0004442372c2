// Package lockedbuffer has a buffer that tests read while others write to it: a log, or
// what a program prints.
package lockedbuffer

import (
	"bytes"
	"sync"
)

// Buffer keeps what is written. It is safe for concurrent use; the zero value is
// empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer. It never fails.
func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
