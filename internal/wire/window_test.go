package wire

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestCreditStopsAtZero(t *testing.T) {
	c := NewCredit(WindowSize)
	if got := c.Take(1 << 30); got != WindowSize {
		t.Fatalf("Take gave %d, want the whole window", got)
	}
	took := make(chan int)
	go func() { took <- c.Take(100) }()
	select {
	case n := <-took:
		t.Fatalf("Take gave %d without credit", n)
	case <-time.After(20 * time.Millisecond):
	}
	if err := c.Grant(30); err != nil {
		t.Fatal(err)
	}
	if n := <-took; n != 30 {
		t.Fatalf("Take gave %d, want 30", n)
	}
	go func() { took <- c.Take(100) }()
	c.Close()
	if n := <-took; n != 0 {
		t.Fatalf("Take gave %d after Close", n)
	}
}

func TestCreditRefusesOverflow(t *testing.T) {
	c := NewCredit(WindowSize)
	if c.Grant(1) == nil {
		t.Fatal("a grant above the window was accepted")
	}
	c.Take(100)
	for _, n := range []uint32{0, 101, 1<<32 - 1} {
		if c.Grant(n) == nil {
			t.Fatalf("a grant of %d was accepted", n)
		}
	}
	if err := c.Grant(100); err != nil {
		t.Fatal(err)
	}
}

func TestInboxBounds(t *testing.T) {
	b := NewInbox(WindowSize)
	if err := b.Put(make([]byte, WindowSize)); err != nil {
		t.Fatal(err)
	}
	if b.Put([]byte{1}) == nil {
		t.Fatal("a byte beyond the window was accepted")
	}
	if got := len(b.Next()); got != WindowSize {
		t.Fatalf("Next gave %d bytes", got)
	}
	if b.Put([]byte{1}) == nil {
		t.Fatal("a byte was accepted while the window was lent out")
	}
	if got := b.Release(); got != WindowSize {
		t.Fatalf("Release granted %d, want the whole window", got)
	}
	if err := b.Put([]byte("tail")); err != nil {
		t.Fatal(err)
	}
	if err := b.EOF(); err != nil {
		t.Fatal(err)
	}
	if b.EOF() == nil || b.Put([]byte{1}) == nil {
		t.Fatal("something was accepted after the end")
	}
	if got := string(b.Next()); got != "tail" {
		t.Fatalf("Next gave %q", got)
	}
	if b.Release(); b.Next() != nil {
		t.Fatal("Next gave something after the end")
	}
}

// One byte at a time must cost no more memory than the window.
func TestInboxHoldsOnlyTheWindow(t *testing.T) {
	b := NewInbox(WindowSize)
	for range WindowSize {
		if err := b.Put([]byte{'x'}); err != nil {
			t.Fatal(err)
		}
	}
	if cap(b.buf) > 2*WindowSize {
		t.Fatalf("%d bytes of buffer for a window of %d", cap(b.buf), WindowSize)
	}
	b.Close()
	if b.buf != nil || b.Next() != nil {
		t.Fatal("a closed inbox keeps its data")
	}
	if err := b.Put([]byte{1}); err != nil {
		t.Fatal("a closed inbox must drop data, not complain")
	}
}

func TestCreditAndInboxTogether(t *testing.T) {
	const total = 5 << 20
	credit, inbox := NewCredit(WindowSize), NewInbox(WindowSize)
	go func() {
		for sent := 0; sent < total; {
			n := credit.Take(min(40_000, total-sent))
			if err := inbox.Put(bytes.Repeat([]byte{byte(sent)}, n)); err != nil {
				t.Error(err)
				break
			}
			sent += n
		}
		inbox.Finish()
	}()
	got := 0
	for p := inbox.Next(); p != nil; p = inbox.Next() {
		got += len(p)
		if n := inbox.Release(); n > 0 {
			if err := credit.Grant(uint32(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got != total {
		t.Fatalf("%d bytes came, want %d", got, total)
	}
}

// Those who wait return when they are told to stop, and what there is comes
// first.
func TestStopWaiting(t *testing.T) {
	var stop atomic.Bool
	c, b := NewCredit(WindowSize), NewInbox(WindowSize)
	c.Take(WindowSize)
	done := make(chan bool)
	go func() { done <- c.TakeUnless(stop.Load, 5) == 0 }()
	go func() { done <- b.NextUnless(stop.Load) == nil }()
	stop.Store(true)
	c.Wake()
	b.Wake()
	for range 2 {
		if !<-done {
			t.Error("something came of nothing")
		}
	}
	if err := errors.Join(b.Put([]byte("x")), c.Grant(3)); err != nil {
		t.Fatal(err)
	}
	if got := b.NextUnless(stop.Load); string(got) != "x" {
		t.Errorf("Next: %q", got)
	}
	if n := c.TakeUnless(stop.Load, 5); n != 3 {
		t.Errorf("Take: %d", n)
	}
}
