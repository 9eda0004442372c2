package warm

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pinfold/internal/zygote"
)

// fakeFork is a fork whose other ends the test has.
type fakeFork struct {
	*zygote.Child
	stdin, stdout, stderr *os.File
	exited                chan zygote.Exit
}

func newFakeFork(t *testing.T) *fakeFork {
	t.Helper()
	f := &fakeFork{Child: &zygote.Child{}, exited: make(chan zygote.Exit, 1)}
	f.Exited = f.exited
	for _, p := range []struct{ read, write **os.File }{{&f.stdin, &f.Stdin}, {&f.Stdout, &f.stdout}, {&f.Stderr, &f.stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		*p.read, *p.write = r, w
	}
	t.Cleanup(func() {
		for _, file := range []*os.File{f.stdin, f.stdout, f.stderr} {
			_ = file.Close() // may be closed
		}
	})
	return f
}

// slowly takes its time for each write.
type slowly struct{ bytes.Buffer }

func (s *slowly) Write(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return s.Buffer.Write(b)
}

func TestForkedOutput(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB: many pipes full
	for _, test := range []struct {
		name string
		held bool // somebody keeps the pipe after the end
		know bool // somebody knows how it ended
		out  io.Writer
	}{
		{"an end", false, true, &bytes.Buffer{}},
		{"a slow reader", false, true, &slowly{}},
		{"somebody holds the output", true, true, &bytes.Buffer{}},
		{"a zygote that ended first", false, false, &bytes.Buffer{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeFork(t)
			p := follow(f.Child, test.out, io.Discard)
			if _, err := io.WriteString(f.stdout, big); err != nil {
				t.Fatal(err)
			}
			if !test.held {
				_ = f.stdout.Close()
			}
			_ = f.stderr.Close()
			if test.know {
				f.exited <- zygote.Exit{Code: 3, CPU: time.Second}
			}
			close(f.exited)
			e, err := p.Wait(t.Context())
			if test.know != (err == nil) || test.know && e.Code != 3 {
				t.Fatalf("%+v, %v", e, err)
			}
			if p.PipesHeld() != test.held {
				t.Errorf("held: %v", p.PipesHeld())
			}
			if got := test.out.(interface{ String() string }).String(); got != big {
				t.Errorf("%d bytes of %d", len(got), len(big))
			}
			if _, err := f.Stdin.WriteString("x"); err == nil {
				t.Error("the pipes are still open")
			}
		})
	}
}
