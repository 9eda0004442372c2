package cli

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestStreamNeverBlocksTheProgram writes far more than a pipe holds while
// nobody reads.
func TestStreamNeverBlocksTheProgram(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s := newStream(w, func() { t.Error("the reader is there") })
	chunk := []byte(strings.Repeat("x", 1<<16))
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 64 {
			_, _ = s.Write(chunk) // never fails
		}
	}()
	select {
	case <-written:
	case <-time.After(time.Minute):
		t.Fatal("writing waited for the reader")
	}
	read := make(chan int)
	go func() {
		total, buf := 0, make([]byte, 1<<16)
		for total < 64<<16 {
			n, err := r.Read(buf)
			if err != nil {
				break
			}
			total += n
		}
		read <- total
	}()
	s.finish(context.Background())
	if got := <-read; got != 64<<16 {
		t.Fatalf("%d bytes arrived", got)
	}
}

func TestStreamGivesUpWhenCancelled(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := newStream(w, func() {})
	_, _ = s.Write(make([]byte, 1<<20)) // more than the pipe holds
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	s.finish(ctx)
	if took := time.Since(start); took > time.Minute {
		t.Fatalf("took %v", took)
	}
	_ = r.Close() // lets the writing goroutine end
	<-s.done
}
