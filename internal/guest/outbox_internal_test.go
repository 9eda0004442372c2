//go:build unix

package guest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
)

// tries is a connection as a driver may have it: not of package net, but one that
// can be written to without waiting.
type tries struct {
	net.Conn
	times int
}

func (c *tries) TryWrite(b []byte) int {
	c.times++
	return tryWriter(c.Conn)(b)
}

// pair is a pair of sockets.
func pair(t *testing.T) (ours *tries, theirs net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return &tries{Conn: ends[0]}, ends[1]
}

// idle says whether an outbox holds neither a buffer nor a goroutine.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending == nil && !o.writing
}

// What the connection takes at once is written by who adds it; for the rest there
// is a goroutine until it is written, and then nothing is held any more.
func TestOutboxHoldsNothingWhenIdle(t *testing.T) {
	ours, theirs := pair(t)
	o := newOutbox(ours, func(err error) { t.Error(err) })
	add := func(n int) {
		t.Helper()
		if !o.add(func(b []byte) []byte { return append(b, bytes.Repeat([]byte{'x'}, n)...) }) {
			t.Fatal("too much waits")
		}
	}
	add(100)
	if !o.idle() {
		t.Error("what the connection takes at once was left for somebody else")
	}
	const large = 8 << 20 // no socket takes that
	add(large)
	if o.idle() {
		t.Fatal("the connection took 8 MiB at once")
	}
	add(100)
	if n, err := io.CopyN(io.Discard, theirs, large+200); err != nil {
		t.Fatalf("%d bytes came: %v", n, err)
	}
	o.drained()
	if !o.idle() {
		t.Error("with nothing to write it still holds something")
	}
	add(100)
	if !o.idle() {
		t.Error("after a rest was written, nobody writes at once any more")
	}
	if ours.times < 3 {
		t.Errorf("the connection was asked %d times to write at once", ours.times)
	}
}

// A connection that fails is said once, and close ends what waits.
func TestOutboxThatFails(t *testing.T) {
	ours, theirs := net.Pipe() // takes nothing at once
	failed := make(chan error, 2)
	var o *outbox
	o = newOutbox(ours, func(err error) {
		failed <- err
		o.close()
	})
	o.add(func(b []byte) []byte { return append(b, "frame"...) })
	_ = theirs.Close()
	if err := <-failed; !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	o.drained()
	if !o.add(func([]byte) []byte { t.Error("a frame for a connection that has ended"); return nil }) {
		t.Error("too much waits for a connection that has ended")
	}
	if len(failed) > 0 {
		t.Error("said twice")
	}
}

// What was held back is sent before what others send as soon as they may.
func TestReleaseComesFirst(t *testing.T) {
	for range 20_000 {
		var sent bytes.Buffer // written to with the lock alone: all is taken at once
		o := &outbox{try: func(b []byte) int { n, _ := sent.Write(b); return n }}
		o.room.L = &o.mu
		one := func(c byte) { o.add(func(b []byte) []byte { return append(b, c) }) }
		o.addLast(func(b []byte) []byte { return b })
		one('1')
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() {
				for o.holds() { // whoever sees that it is over sends
				}
				one('2')
			})
		}
		o.release()
		others.Wait()
		if got := sent.String(); got != "12222" {
			t.Fatal(got)
		}
	}
}

func (o *outbox) holds() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}
