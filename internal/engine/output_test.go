package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/execution"
	"pinfold/sandbox"
)

// The cap cuts what is kept and what is passed on alike; the rest is counted.
func TestOutputCap(t *testing.T) {
	type output struct {
		Stdout, Stderr                   string
		StdoutBytes, StderrBytes         int64
		StdoutTruncated, StderrTruncated bool
	}
	for _, c := range []struct {
		name           string
		stdout, stderr string
		want           output
	}{
		{"below", "abc", "", output{Stdout: "abc", StdoutBytes: 3}},
		{"exactly", "0123456789", "0123456789", output{Stdout: "0123456789", Stderr: "0123456789", StdoutBytes: 10, StderrBytes: 10}},
		{"one more", "0123456789x", "y", output{Stdout: "0123456789", Stderr: "y", StdoutBytes: 11, StderrBytes: 1, StdoutTruncated: true}},
		{"much more", string(zeros(3 << 20)), "", output{Stdout: "0000000000", StdoutBytes: 3 << 20, StdoutTruncated: true}},
		{"not UTF-8", "a\xffb", "\x1b[2J", output{Stdout: "a\uFFFDb", Stderr: "\x1b[2J", StdoutBytes: 3, StderrBytes: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEngine(t, always(fake.Script{Program: says(c.stdout, c.stderr)}))
			req := shell(sandbox.Limits{OutputBytes: 10})
			var live bytes.Buffer
			req.Streams.Stdout = &live
			r := run(t, e, req)
			got := output{r.Stdout, r.Stderr, r.StdoutBytes, r.StderrBytes, r.StdoutTruncated, r.StderrTruncated}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := c.stdout[:min(len(c.stdout), 10)]; live.String() != want {
				t.Errorf("live stdout %q, want %q", live.String(), want)
			}
			if r.Status != sandbox.StatusSucceeded {
				t.Errorf("%s by %+v", r.Status, r.Cause)
			}
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("gone") }

// A reader that is gone is not the program's fault.
func TestLiveReaderGone(t *testing.T) {
	e, _ := newEngine(t, always(fake.Script{Program: says(string(zeros(1<<20)), "")}))
	req := shell(sandbox.Limits{})
	req.Streams.Stdout = broken{}
	if r := run(t, e, req); r.Status != sandbox.StatusSucceeded || len(r.Stdout) != 1<<20 {
		t.Errorf("%s, %d bytes", r.Status, len(r.Stdout))
	}
}

// stuck is a reader that does not read.
type stuck struct{ until chan struct{} }

func (s stuck) Write(b []byte) (int, error) { <-s.until; return len(b), nil }

// A reader that does not read stops the program, and the time limit ends it.
func TestLiveReaderStuck(t *testing.T) {
	e, _ := newEngine(t, always(fake.Script{Program: says(string(zeros(2<<20)), "")}))
	req := shell(sandbox.Limits{WallTimeMS: 50})
	until := make(chan struct{})
	defer close(until)
	req.Streams.Stdout = stuck{until}
	if r := run(t, e, req); r.Cause.Kind != sandbox.CauseWallTime { // while the reader is still stuck
		t.Errorf("%s by %+v", r.Status, r.Cause)
	}
}

// What a program had written is there, also when its caller leaves before the agent has
// said that it started.
func TestOutputOfWhatIsCancelledAtItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		printed := make(chan struct{})
		e, _ := newEngine(t, always(fake.Script{
			Starting: func(*fake.Machine) {
				cancel()
				time.Sleep(execution.KillTimeout / 2) // of the test's clock
			},
			Program: func(p *fake.Process) fake.Exit {
				_, _ = io.WriteString(p.Stdout, "first\n")
				close(printed)
				return sleeps(p)
			},
			KillAll: func(<-chan struct{}) { <-printed },
		}))
		r, err := e.Run(ctx, shell(sandbox.Limits{}))
		if err != nil || r.Cause.Kind != sandbox.CauseCancelled || r.Stdout != "first\n" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestStdin(t *testing.T) {
	for _, c := range []struct {
		name, spec, live, want string
	}{
		{"none", "", "", ""},
		{"of the spec", "from the spec", "", "from the spec"},
		{"live", "", strings.Repeat("live", 200_000), strings.Repeat("live", 200_000)},
		{"live before the spec's", "from the spec", "live", "live"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEngine(t, always(fake.Script{Program: func(p *fake.Process) fake.Exit {
				p.Args = []string{"cat"}
				return fake.Builtin(p)
			}}))
			req := shell(sandbox.Limits{})
			req.Spec.Stdin = c.spec
			if c.live != "" {
				req.Streams.Stdin = strings.NewReader(c.live)
			}
			if r := run(t, e, req); r.Stdout != c.want {
				t.Errorf("%d bytes came back, not %d", len(r.Stdout), len(c.want))
			}
		})
	}
}
