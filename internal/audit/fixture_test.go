package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// open opens a log that is closed with the test.
func open(t *testing.T, o Options) *Log {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "audit")
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// event is one like those that runs have.
func event(n int) records.Event {
	code := 0
	r := &sandbox.Result{
		ID: fmt.Sprintf("run_%026d", n), Status: sandbox.StatusSucceeded, ExitCode: &code, Language: "python",
		Cause:  sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"},
		Stdout: fmt.Sprintf("%d\n", n), Usage: sandbox.Usage{WallMS: 17, CPUMS: 19, MemoryPeakBytes: 4710400},
		Isolation: sandbox.Isolation{Driver: "native", Enforced: []string{"network:none", "memory", "cpu_time", "seccomp"}},
	}
	e := records.RunEvent(r)
	e.AddSpec(&sandbox.Spec{Code: fmt.Sprintf("print(%d)", n), Template: "host"})
	e.Entry.Tenant, e.Entry.Key = fmt.Sprintf("tenant-%d", n%3), "k1"
	return e
}

// record records n events, one after another.
func record(t *testing.T, l *Log, n int) (all []*sandbox.Receipt) {
	t.Helper()
	for i := range n {
		r, err := l.Record(t.Context(), event(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// whole is a closed log of n entries: its directory and what is in its files.
type closedLog struct {
	dir      string
	public   string
	entries  []byte
	lines    [][]byte // each with its line feed
	receipts []*sandbox.Receipt
}

func closed(t *testing.T, n int, o Options) closedLog {
	t.Helper()
	l := open(t, o)
	c := closedLog{dir: l.o.Dir, public: l.PublicKey(), receipts: record(t, l, n)}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c.entries = c.read(t, entriesName)
	c.lines = bytes.SplitAfter(c.entries, []byte{'\n'})
	c.lines = c.lines[:len(c.lines)-1]
	if len(c.lines) != n {
		t.Fatalf("%d entries, not %d", len(c.lines), n)
	}
	return c
}

func (c closedLog) read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, name)) //nolint:gosec // of the test
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (c closedLog) write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// verify reports the first problem, nil where there is none.
func (c closedLog) verify(t *testing.T, against Evidence) *Problem {
	t.Helper()
	return c.report(t, against).Problem
}

func (c closedLog) report(t *testing.T, against Evidence) *Report {
	t.Helper()
	var err error
	if against.Key, err = ParseKey(c.public); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(c.dir, against)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wants says that a problem is one of a kind at an index.
func wants(t *testing.T, p *Problem, kind string, index int64) {
	t.Helper()
	if p == nil || p.Kind != kind || p.Index != index {
		t.Errorf("want %s at %d, got %+v", kind, index, p)
	}
}

func code(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
