package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pinfold/sandbox"
)

// Many at once: each gets an entry of its own and a receipt that proves it.
func TestManyRecordAtOnce(t *testing.T) {
	l := open(t, Options{})
	key, _ := ParseKey(l.PublicKey())
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]string{}
	for g := range 30 {
		wg.Go(func() {
			for i := range 10 {
				e := event(100*g + i)
				r, err := l.Record(t.Context(), e)
				if err != nil {
					t.Error(err)
					return
				}
				got, _, err := VerifyReceipt(*r, key)
				mu.Lock()
				if err != nil || got.ID != e.Entry.ID || seen[r.Index] != "" {
					t.Errorf("%d: %+v, %v", r.Index, got, err)
				}
				seen[r.Index] = got.ID
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var from int64
	var listed int
	for from >= 0 {
		page, next, err := l.List(Filter{}, from, 70)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if e.Index != int64(listed) || seen[e.Index] != e.ID {
				t.Errorf("listed %d: %+v", listed, e)
			}
			listed++
		}
		from = next
	}
	if listed != 300 {
		t.Errorf("%d entries", listed)
	}
	for _, index := range []int64{0, 255, 256, 299} {
		e, r, err := l.Entry(index)
		if err != nil || e.Index != index {
			t.Fatalf("%d: %+v, %v", index, e, err)
		}
		if _, c, err := VerifyReceipt(*r, key); err != nil || c.Size != 300 {
			t.Errorf("%d: %+v, %v", index, c, err)
		}
	}
	for _, index := range []int64{-1, 300} {
		if _, _, err := l.Entry(index); code(err) != sandbox.CodeNotFound {
			t.Errorf("%d: %v", index, err)
		}
	}
}

func TestFilterSelects(t *testing.T) {
	e := event(1).Entry
	e.Time, e.Sandbox, e.Isolation.Level = time.Unix(1000, 0), "sbx_a", "vm"
	e.Network = &sandbox.AuditNetwork{Secrets: []string{"github"}}
	e.Findings, e.Severity = []string{"process-start"}, sandbox.SeverityDanger
	e.Policy = &sandbox.AuditPolicy{Rules: []string{"vm"}, By: "boss"}
	more, set := e, e
	more.Network = &sandbox.AuditNetwork{Secrets: []string{"github", sandbox.AuditMore}}
	set.Kind, set.ID, set.Network = sandbox.AuditSecretSet, "pypi", nil
	for name, c := range map[string]struct {
		f    Filter
		want bool
	}{
		"all":           {Filter{}, true},
		"tenant":        {Filter{Tenant: "tenant-1"}, true},
		"other tenant":  {Filter{Tenant: "tenant-2"}, false},
		"key":           {Filter{Key: "k1", Drivers: []string{"docker", "native"}, Levels: []string{"vm"}}, true},
		"other key":     {Filter{Key: "k2"}, false},
		"other driver":  {Filter{Drivers: []string{"docker"}}, false},
		"other level":   {Filter{Levels: []string{"container"}}, false},
		"status":        {Filter{Statuses: []sandbox.Status{sandbox.StatusSucceeded}}, true},
		"other status":  {Filter{Statuses: []sandbox.Status{sandbox.StatusKilled}}, false},
		"kind":          {Filter{Kinds: []sandbox.AuditKind{sandbox.AuditProcess}}, false},
		"id":            {Filter{IDs: []string{e.ID}}, true},
		"its sandbox":   {Filter{IDs: []string{"sbx_a"}}, true},
		"other id":      {Filter{IDs: []string{"sbx_b"}}, false},
		"secret":        {Filter{Secrets: []string{"github"}}, true},
		"other secret":  {Filter{Secrets: []string{"pypi"}}, false},
		"finding":       {Filter{Findings: []string{"process-start"}, Severities: []sandbox.Severity{"danger"}, Rules: []string{"x", "vm"}, By: []string{"boss"}}, true},
		"other finding": {Filter{Findings: []string{"network-call"}}, false},
		"less severe":   {Filter{Severities: []sandbox.Severity{"notice"}}, false},
		"other rule":    {Filter{Rules: []string{"x"}}, false},
		"other decider": {Filter{By: []string{"k1"}}, false},
		"since":         {Filter{Since: time.Unix(1000, 0)}, true},
		"since later":   {Filter{Since: time.Unix(1001, 0)}, false},
		"before":        {Filter{Before: time.Unix(1001, 0)}, true},
		"before itself": {Filter{Before: time.Unix(1000, 0)}, false},
	} {
		if c.f.Matches(e) != c.want {
			t.Errorf("%s: not %t", name, c.want)
		}
	}
	for of, want := range map[*sandbox.AuditEntry]bool{&e: false, &more: true, &set: true} {
		if (Filter{Secrets: []string{"pypi"}}).Matches(*of) != want {
			t.Errorf("secret: not %t for %+v", want, *of.Network)
		}
	}
}

// Two processes cannot write to one log.
func TestTwoWritersAreRefused(t *testing.T) {
	l := open(t, Options{})
	if second, err := Open(Options{Dir: l.o.Dir}); code(err) != sandbox.CodeConflict {
		t.Errorf("%v, %v", second, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: l.o.Dir})
}

// The clock may go back: entries claim its times, and their order is the index.
func TestClockThatGoesBackIsNoFault(t *testing.T) {
	now := time.Unix(2_000_000_000, 0)
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, Options{Dir: dir, Now: func() time.Time { now = now.Add(-time.Hour); return now }})
	c := closedLog{dir: dir, public: l.PublicKey(), receipts: record(t, l, 5)}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p := c.verify(t, Evidence{}); p != nil {
		t.Errorf("%+v", p)
	}
	var last sandbox.AuditEntry
	err := Each(dir, func(e sandbox.AuditEntry, _ []byte, _ string) error {
		if e.Index > 0 && !e.Time.Before(last.Time) {
			t.Errorf("entry %d claims %s after %s", e.Index, e.Time, last.Time)
		}
		last = e
		return nil
	})
	if err != nil || last.Index != 4 {
		t.Errorf("%+v, %v", last, err)
	}
}

// readOnly makes the log's file one that cannot be written, and gives it back.
func readOnly(t *testing.T, l *Log) (mend func()) {
	t.Helper()
	name := l.inside(entriesName)
	err := l.commitOne(&pending{do: func() error {
		f, err := os.Open(name)
		if err == nil {
			_ = l.entries.Close()
			l.entries = f
		}
		return errors.Join(err, os.Rename(name, name+".away"))
	}})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(name+".away", name); err != nil {
			t.Fatal(err)
		}
	}
}

// A log that cannot be written says so for each record, goes on by itself when it can,
// and has an entry that says how many are missing.
func TestWhatCannotBeWrittenIsSaid(t *testing.T) {
	l := open(t, Options{Strict: true})
	record(t, l, 2)
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	mend := readOnly(t, l)
	for i := range 3 {
		if r, err := l.Record(t.Context(), event(i)); code(err) != sandbox.CodeAuditUnavailable {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if err := l.Check(); code(err) != sandbox.CodeAuditUnavailable {
		t.Errorf("the next run would begin: %v", err)
	}
	mend()
	for begin := time.Now(); l.Check() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("it does not try again")
		}
	}
	e, _, err := l.Entry(2)
	if err != nil || e.Kind != sandbox.AuditGap || e.Missing != 3 {
		t.Errorf("%+v, %v", e, err)
	}
	record(t, l, 1)
	c := closedLog{dir: l.o.Dir, public: l.PublicKey()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := c.report(t, Evidence{}); r.Problem != nil || r.Entries != 4 {
		t.Errorf("%+v", r)
	}
}

// entries are all entries of a log.
func entries(t *testing.T, l *Log) []sandbox.AuditEntry {
	t.Helper()
	all, next, err := l.List(Filter{}, 0, 100)
	if err != nil || next >= 0 {
		t.Fatalf("next %d, %v", next, err)
	}
	return all
}

// What is missing is said also where nobody asks for anything any more: while the log is
// open, and when it is closed.
func TestGapIsSaidUnasked(t *testing.T) {
	for name, unasked := range map[string]func(t *testing.T, l *Log){
		"open": func(t *testing.T, l *Log) {
			t.Helper()
			for begin := time.Now(); len(entries(t, l)) < 2; time.Sleep(20 * time.Millisecond) {
				if time.Since(begin) > 20*time.Second {
					t.Fatal("it does not try again")
				}
			}
		},
		"closed": func(t *testing.T, l *Log) {
			t.Helper()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Options{Strict: true})
			record(t, l, 1)
			mend := readOnly(t, l)
			if _, err := l.Record(t.Context(), event(1)); code(err) != sandbox.CodeAuditUnavailable {
				t.Fatal(err)
			}
			mend()
			unasked(t, l)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			all := entries(t, open(t, Options{Dir: l.o.Dir}))
			if len(all) != 2 || all[1].Kind != sandbox.AuditGap || all[1].Missing != 1 {
				t.Errorf("%+v", all)
			}
		})
	}
}

// A log that was asked whether it works, and did not, works as soon as it was asked again.
func TestLogThatWorksAgainSaysSo(t *testing.T) {
	l := open(t, Options{Strict: true})
	again := func() error { return l.commitOne(&pending{}) }
	mend := readOnly(t, l)
	if err := l.commitOne(&pending{do: func() error { l.lost.file = true; return nil }}); err != nil {
		t.Fatal(err)
	}
	if err := again(); code(err) != sandbox.CodeAuditUnavailable || l.Check() == nil {
		t.Fatalf("it cannot be written: %v", err)
	}
	mend()
	if err := again(); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// killedAt names the step at which a child of the next test ends.
const killedAt = "PINFOLD_TEST_AUDIT_KILLED_AT"

// TestKilledWhileWriting kills a process with SIGKILL at each step of a write. What it had
// been told of is in the log that the next one opens; what was torn is said.
func TestKilledWhileWriting(t *testing.T) {
	if step, dir := os.Getenv(killedAt), os.Getenv(killedAt+"_DIR"); step != "" {
		writeUntilKilled(t, step, dir)
		return
	}
	for _, step := range []string{"texts", "torn", "written", "flushed", "hashed"} {
		t.Run(step, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "audit")
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWhileWriting$") //nolint:gosec // ourselves
			child.Env = append(os.Environ(), killedAt+"="+step, killedAt+"_DIR="+dir)
			out, err := child.Output()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v\n%s", err, out)
			}
			told := map[int64]string{}
			lines := bufio.NewScanner(bytes.NewReader(out))
			for lines.Scan() {
				if n, id, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "told "), " "); ok {
					index, err := strconv.ParseInt(n, 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					told[index] = id
				}
			}
			if len(told) != 7 {
				t.Fatalf("told of %d entries, not 7:\n%s", len(told), out)
			}
			l := open(t, Options{Dir: dir, KeepTexts: true, TextBytes: 1 << 20})
			torn := false
			for from := int64(0); from >= 0; {
				page, next, err := l.List(Filter{}, from, 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					torn = torn || e.Kind == sandbox.AuditTorn && e.Missing > 0
					if told[e.Index] == e.ID {
						delete(told, e.Index)
					}
				}
				from = next
			}
			if len(told) > 0 || torn != (step == "torn") {
				t.Errorf("lost: %v; torn: %t", told, torn)
			}
			record(t, l, 3)
			c := closedLog{dir: dir, public: l.PublicKey()}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if p := c.verify(t, Evidence{}); p != nil {
				t.Errorf("%+v", p)
			}
		})
	}
}

// writeUntilKilled says of what it was told, and kills its own process at the eighth time
// that a write comes to a step.
func writeUntilKilled(t *testing.T, step, dir string) {
	t.Helper()
	times := 0
	l, err := Open(Options{Dir: dir, KeepTexts: true, TextBytes: 1 << 20, step: func(name string) {
		if name == step {
			if times++; times == 8 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r, err := l.Record(t.Context(), event(i))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("told %d %s\n", r.Index, event(i).Entry.ID)
	}
}

// blocked is a witness that does not answer.
type blocked struct{ asked chan struct{} }

func (b blocked) String() string { return "blocked" }

func (b blocked) Keep(ctx context.Context, _ Told) error {
	select {
	case b.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

// Witnesses get checkpoints of the log, one that fails gets them again, and one that does
// not answer holds up nobody.
func TestWitnessesAreTold(t *testing.T) {
	var mu sync.Mutex
	var got []string
	refusals := 1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if refusals--; refusals >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got = append(got, b.String())
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "witness")
	hangs := blocked{make(chan struct{}, 1)}
	l := open(t, Options{Witnesses: []Witness{NewWitness(file), NewWitness(server.URL + "/checkpoints"), hangs}})
	record(t, l, 2)
	<-hangs.asked
	record(t, l, 2) // while it hangs
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	key, _ := ParseKey(l.PublicKey())
	mu.Lock()
	defer mu.Unlock()
	if len(got) == 0 {
		t.Fatal("the address was not told")
	}
	if c, err := openCheckpoint([]byte(got[len(got)-1]), key); err != nil || c.Size != 4 {
		t.Errorf("the address has %+v, %v", c, err)
	}
	if last, err := lastCheckpoint(file, l.key); err != nil || last.Size != 4 {
		t.Errorf("the file has %+v, %v", last, err)
	}
}

// A witness that hangs and cannot be ended, such as a file on a dead network disk, does not
// hold up the end.
func TestHangingWitnessDoesNotHoldUpTheEnd(t *testing.T) {
	hangs := dead{make(chan struct{}), make(chan struct{})}
	l := open(t, Options{Witnesses: []Witness{hangs}})
	record(t, l, 1)
	<-hangs.asked
	ended := make(chan error)
	go func() { ended <- l.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(witnessLast + witnessLeft + 10*time.Second):
		t.Error("it does not end")
	}
	close(hangs.mended)
}

// dead is a witness that does not even notice that its time is over.
type dead struct{ asked, mended chan struct{} }

func (dead) String() string { return "dead" }

func (d dead) Keep(context.Context, Told) error {
	close(d.asked)
	<-d.mended
	return nil
}

// The key is its owner's alone.
func TestKeyIsPrivate(t *testing.T) {
	l := open(t, Options{Name: "audit.example.com"})
	for name, mode := range map[string]os.FileMode{keyName: 0o600, entriesName: 0o600, hashesName: 0o600} {
		info, err := os.Stat(l.inside(name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if !strings.HasPrefix(l.PublicKey(), "audit.example.com+") {
		t.Errorf("the key is %s", l.PublicKey())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.inside(keyName), 0o644); err != nil { //nolint:gosec // the fault
		t.Fatal(err)
	}
	open(t, Options{Dir: l.o.Dir})
	if info, err := os.Stat(l.inside(keyName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Open(Options{Dir: filepath.Join(t.TempDir(), "a"), Name: "two words"}); code(err) != sandbox.CodeConfigInvalid {
		t.Errorf("a name with a space: %v", err)
	}
}
