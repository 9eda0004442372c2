package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
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

// TestLineOfOurOwn: where stdout and stderr go to the same place, a line of ours was once
// written behind what a program had begun on stdout.
func TestLineOfOurOwn(t *testing.T) {
	for _, c := range []struct {
		writes []string // to stdout and stderr in turn
		shared bool
		mid    bool
	}{
		{[]string{"h"}, true, true},
		{[]string{"h"}, false, false},
		{[]string{"h\n"}, true, false},
		{[]string{"h", "e\n"}, true, false},
		{[]string{"h\n", "e"}, true, true},
		{[]string{"h\n", "e"}, false, true},
		{[]string{"h", "e\n", "x"}, true, true},
		{[]string{"h", "e", "x\n"}, true, false},
		{nil, true, false},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		a := &app{Deps: Deps{Stdout: w, Stderr: w}}
		if !c.shared {
			other, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			a.Stdout = other
		}
		out := a.liveOutput(&runFlags{}, func() {})
		stdout, stderr := out.writers()
		result := &sandbox.Result{}
		for i, text := range c.writes {
			to, all, name := stdout, &result.Stdout, "stdout"
			if i%2 == 1 {
				to, all, name = stderr, &result.Stderr, "stderr"
			}
			_, _ = io.WriteString(to, text)
			*all += text
			result.OutputOrder = append(result.OutputOrder, sandbox.OutputPiece{Stream: name, Bytes: int64(len(text))})
		}
		out.finish(t.Context())
		if got := out.midLine(); got != c.mid {
			t.Errorf("%q, shared %v: %v", c.writes, c.shared, got)
		}
		if got := a.endsMidLine(result); got != c.mid {
			t.Errorf("a result of %q, shared %v: %v", c.writes, c.shared, got)
		}
		_, _ = r.Close(), w.Close()
	}
}
