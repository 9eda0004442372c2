package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/sandbox"
	"pinfold/test/lockedbuffer"
)

// watcher opens a witness for keys that is closed with the test.
func watcher(t *testing.T, dir string, keys ...string) (*Watcher, *lockedbuffer.Buffer) {
	t.Helper()
	var all []Key
	for _, text := range keys {
		key, err := ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key)
	}
	said := &lockedbuffer.Buffer{}
	w, err := OpenWatcher(dir, all, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, said
}

// toldBy is what a log says of itself now.
func toldBy(l *Log) Told {
	l.mu.RLock()
	h := l.head
	l.mu.RUnlock()
	return l.told(h)
}

// from is a body with a proof from so many entries on.
func from(t *testing.T, head Told, old int64) []byte {
	t.Helper()
	body, err := (&urlWitness{has: old}).body(head)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(body)
}

func taken(t *testing.T, w *Watcher, body []byte) {
	t.Helper()
	if err := w.Add(body); err != nil {
		t.Fatalf("refused: %v", err)
	}
}

func asksFrom(t *testing.T, err error, size int64) {
	t.Helper()
	var from *SizeError
	if !errors.As(err, &from) || from.Size != size {
		t.Errorf("want a proof from %d asked for, got %v", size, err)
	}
}

func refusedAs(t *testing.T, err error, want string) {
	t.Helper()
	if code(err) != want {
		t.Errorf("want %s, got %v", want, err)
	}
}

// copied is a log of n entries and, under the same key, another history that begins with the
// same ones.
func copied(t *testing.T, n int) (honest, other *Log, key Key) {
	t.Helper()
	first := closed(t, n, Options{Name: "a.example.com"})
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(first.dir)); err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(first.public)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, Options{Dir: first.dir}), open(t, Options{Dir: dir}), key
}

func witnessedOf(t *testing.T, dir string) Witnessed {
	t.Helper()
	all, err := ReadWitnessed(dir)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// A log that grows is followed, also when it is told again, after a restart, and where what
// was seen has filled files.
func TestHonestGrowthIsWitnessed(t *testing.T) {
	l := open(t, Options{})
	record(t, l, 1)
	dir := t.TempDir()
	w, said := watcher(t, dir, l.PublicKey())
	taken(t, w, []byte(toldBy(l).Signed))
	for old := int64(1); old < 40; old++ {
		record(t, l, 1)
		head := toldBy(l)
		asksFrom(t, w.Add([]byte(head.Signed)), old)
		asksFrom(t, w.Add(from(t, head, old-1)), old)
		taken(t, w, from(t, head, old))
		taken(t, w, []byte(head.Signed)) // again
		if old%7 == 0 {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w, said = watcher(t, dir, l.PublicKey())
		}
	}
	key, _ := ParseKey(l.PublicKey())
	got := witnessedOf(t, dir)
	if got.Entries != 40 || got.Log != key.Name() || len(got.Evidence) != 0 || got.At.IsZero() || said.String() != "" {
		t.Errorf("%+v, %s", got, said)
	}
	report, err := Verify(l.o.Dir, Evidence{Key: key, Checkpoints: []string{got.Dir}})
	if err != nil || report.Problem != nil || report.Checkpoints < 40 {
		t.Errorf("%+v, %v", report, err)
	}
}

// A log that was rewritten under its key is refused, with both checkpoints as evidence: at
// the same size, at one before, and when it has grown beyond. Verifying the log with the
// witness's files finds it.
func TestForkIsRefusedAndKept(t *testing.T) {
	honest, other, key := copied(t, 5)
	dir := t.TempDir()
	w, said := watcher(t, dir, key.String())
	taken(t, w, []byte(toldBy(honest).Signed))
	record(t, honest, 3)
	mid := toldBy(honest)
	taken(t, w, from(t, mid, 5))
	record(t, other, 3) // other salts, so other entries
	refusedAs(t, w.Add([]byte(toldBy(other).Signed)), sandbox.CodeConflict)
	refusedAs(t, w.Add(from(t, toldBy(other), 5)), sandbox.CodeConflict) // kept once
	record(t, other, 1)
	nine := toldBy(other)
	proof := from(t, nine, 8)
	err := w.Add(proof)
	refusedAs(t, err, sandbox.CodeConflict)
	if !errors.Is(err, ErrUnproven) {
		t.Errorf("%v", err)
	}
	// The control: before it was looked at whether the proof holds, all was well with this one.
	c, _, err := openNote([]byte(nine.Signed), key)
	if err != nil || c.Size != 9 {
		t.Fatal(c, err)
	}
	l := w.logs[0]
	root := l.last.Root
	asked, err := parseTold(proof)
	if err != nil || asked.old != l.last.Size {
		t.Fatal(asked, err)
	}
	l.last.Root = must(tlog.TreeHash(8, storedHashes(other.hashes)))
	if tlog.CheckTree(asked.proof, c.Size, c.Root, 8, l.last.Root) != nil || tlog.CheckTree(asked.proof, c.Size, c.Root, 8, root) == nil {
		t.Error("it is not the root that was seen which tells")
	}
	l.last.Root = root

	record(t, honest, 3)
	taken(t, w, from(t, toldBy(honest), 8))
	got := witnessedOf(t, dir)
	if len(got.Evidence) != 2 || got.Entries != 11 || strings.Count(said.String(), "CONTRADICTS") < 2 {
		t.Fatalf("%+v: %s", got, said)
	}
	for i, kind := range []string{ProblemCheckpoint, ProblemChanged} { // the second is one size more: the honest log has another entry there
		report, err := Verify(honest.o.Dir, Evidence{Key: key, Checkpoints: []string{got.Evidence[i]}})
		if err != nil || report.Problem == nil || report.Problem.Kind != kind {
			t.Errorf("%s: %+v, %v", got.Evidence[i], report.Problem, err)
		}
	}
	report, err := Verify(other.o.Dir, Evidence{Key: key, Checkpoints: []string{got.Dir}})
	if err != nil || report.Problem == nil {
		t.Errorf("the other history verifies: %v", err)
	}
	if report, err := Verify(other.o.Dir, Evidence{Key: key}); err != nil || report.Problem != nil {
		t.Errorf("the control: it is well by itself: %+v, %v", report.Problem, err)
	}
	if report, err := Verify(honest.o.Dir, Evidence{Key: key, Checkpoints: []string{got.Dir}}); err != nil || report.Problem != nil {
		t.Errorf("the honest log does not verify: %+v, %v", report.Problem, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A log that was rolled back is asked for what was seen, which it does not have; one that was
// seen before, sent again by anybody, is no evidence, nor does it move anything.
func TestRollBackIsSeen(t *testing.T) {
	honest, other, key := copied(t, 5)
	dir := t.TempDir()
	w, said := watcher(t, dir, key.String())
	five := toldBy(honest)
	taken(t, w, []byte(five.Signed))
	record(t, honest, 5)
	taken(t, w, from(t, toldBy(honest), 5))
	asksFrom(t, w.Add([]byte(five.Signed)), 10)
	if said.String() != "" || len(witnessedOf(t, dir).Evidence) != 0 {
		t.Errorf("an old one again: %s", said)
	}
	record(t, other, 2)
	asksFrom(t, w.Add([]byte(toldBy(other).Signed)), 10)
	asksFrom(t, w.Add(from(t, toldBy(other), 5)), 10)
	got := witnessedOf(t, dir)
	if got.Entries != 10 || len(got.Evidence) != 1 || !strings.Contains(said.String(), EvidenceRolledBack) {
		t.Errorf("%+v, %s", got, said)
	}
	report, err := Verify(honest.o.Dir, Evidence{Key: key, Checkpoints: got.Evidence})
	if err != nil || report.Problem == nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// What is no checkpoint of a watched log costs nothing and leaves nothing.
func TestStrangersAreRefused(t *testing.T) {
	l, stranger := open(t, Options{Name: "a.example.com"}), open(t, Options{Name: "b.example.com"})
	impostor := open(t, Options{Name: "a.example.com"}) // the name, and another key
	for _, each := range []*Log{l, stranger, impostor} {
		record(t, each, 3)
	}
	dir := t.TempDir()
	w, _ := watcher(t, dir, l.PublicKey())
	head := toldBy(l)
	refusedAs(t, w.Add([]byte(toldBy(stranger).Signed)), sandbox.CodeNotFound)
	refusedAs(t, w.Add([]byte(toldBy(impostor).Signed)), sandbox.CodeForbidden)
	refusedAs(t, w.Add([]byte(strings.Replace(head.Signed, "\n3\n", "\n4\n", 1))), sandbox.CodeForbidden)
	for _, body := range []string{
		"old x\n\n" + head.Signed, "old -1\n\n" + head.Signed, "old 01\n\n" + head.Signed, "old 4\n\n" + head.Signed, "old 1\n" + head.Signed, "old 1\nnohash\n\n" + head.Signed,
		"old 1\n" + strings.Repeat(tlog.Hash{}.String()+"\n", 64) + "\n" + head.Signed, strings.Repeat("a", MaxTold+1), "old 1\n" + strings.Repeat("a\n", MaxTold),
	} {
		refusedAs(t, w.Add([]byte(body)), sandbox.CodeRequestInvalid)
	}
	asksFrom(t, w.Add(from(t, head, 1)), 0) // it has seen nothing
	for _, body := range []string{"", "\n", "old ", "old 0\n\n"} {
		if w.Add([]byte(body)) == nil {
			t.Errorf("%q was taken", body)
		}
	}
	// What the log itself signs must not end a note in a file before its end.
	dot, err := l.key.sign(Checkpoint{Name: l.key.Name() + "\n3\n" + head.root(t, l) + "\n.\nx", Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	refusedAs(t, w.Add([]byte(dot)), sandbox.CodeRequestInvalid)
	none, err := l.key.sign(Checkpoint{Name: l.key.Name()})
	if err != nil {
		t.Fatal(err)
	}
	refusedAs(t, w.Add([]byte(none)), sandbox.CodeRequestInvalid)
	if got := witnessedOf(t, dir); got.Entries != 0 || len(got.Evidence) != 0 {
		t.Errorf("%+v", got)
	}
	taken(t, w, []byte(head.Signed)) // the control
	record(t, l, 2)
	bad := bytes.Replace(from(t, toldBy(l), 3), []byte("old 3\n"), []byte("old 3\n"+tlog.Hash{1}.String()+"\n"), 1)
	refusedAs(t, w.Add(bad), sandbox.CodeConflict)
	taken(t, w, from(t, toldBy(l), 3))
}

func (h Told) root(t *testing.T, l *Log) string {
	t.Helper()
	c, err := openCheckpoint([]byte(h.Signed), l.key.verifier)
	if err != nil {
		t.Fatal(err)
	}
	return c.Root.String()
}

// Of two that tell of another history of the same size at once, one is taken.
func TestOneOfTwoAtOnceIsTaken(t *testing.T) {
	honest, other, key := copied(t, 4)
	dir := t.TempDir()
	w, _ := watcher(t, dir, key.String())
	taken(t, w, []byte(toldBy(honest).Signed))
	record(t, honest, 2)
	record(t, other, 2)
	bodies := [][]byte{from(t, toldBy(honest), 4), from(t, toldBy(other), 4)}
	var all sync.WaitGroup
	answers := make([]error, 16)
	for i := range answers {
		all.Go(func() { answers[i] = w.Add(bodies[i%2]) })
	}
	all.Wait()
	for i, err := range answers {
		if (err == nil) != (answers[i%2] == nil) || (err != nil && code(err) != sandbox.CodeConflict) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if (answers[0] == nil) == (answers[1] == nil) {
		t.Errorf("%v", answers)
	}
	if got := witnessedOf(t, dir); len(got.Evidence) != 1 {
		t.Errorf("%+v", got)
	}
}

// Wherever a write was cut off, what was seen before it holds, or all of it.
func TestWitnessKilledBetweenWrites(t *testing.T) {
	honest, other, key := copied(t, 4)
	dir := t.TempDir()
	w, _ := watcher(t, dir, key.String())
	taken(t, w, []byte(toldBy(honest).Signed))
	file := must(notesOf(w.logs[0].dir))[0]
	before := must(os.ReadFile(file)) //nolint:gosec // the test's
	record(t, honest, 2)
	taken(t, w, from(t, toldBy(honest), 4))
	after := must(os.ReadFile(file)) //nolint:gosec // the test's
	record(t, other, 2)
	for cut := len(before); cut <= len(after); cut++ {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, after[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), EvidenceFork+"-01.new"), before[:cut/2], 0o600); err != nil {
			t.Fatal(err)
		}
		w, _ = watcher(t, dir, key.String())
		has := int64(4)
		if cut == len(after) {
			has = 6
			refusedAs(t, w.Add([]byte(toldBy(other).Signed)), sandbox.CodeConflict)
		}
		if got := witnessedOf(t, dir); got.Entries != has {
			t.Fatalf("cut at %d: %+v", cut, got)
		}
		taken(t, w, from(t, toldBy(honest), has))
		if got := witnessedOf(t, dir); got.Entries != 6 {
			t.Fatalf("cut at %d: %+v", cut, got)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(after, []byte("\n6\n"), []byte("\n7\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenWatcher(dir, []Key{key}, slog.New(slog.DiscardHandler))
	refusedAs(t, err, sandbox.CodeStateCorrupt)
}

// Evidence and files are bounded, evidence is not overwritten, and claims that anybody can
// make do not crowd out proofs.
func TestWitnessIsBounded(t *testing.T) {
	honest, other, key := copied(t, 4)
	dir := t.TempDir()
	w, _ := watcher(t, dir, key.String())
	record(t, honest, 40)
	taken(t, w, []byte(toldBy(honest).Signed))
	var first []byte
	for range maxContradictions + 4 {
		record(t, other, 1)
		asksFrom(t, w.Add([]byte(toldBy(other).Signed)), 44)
		kept, err := os.ReadFile(filepath.Join(w.logs[0].dir, EvidenceRolledBack+"-01"))
		if err != nil || (first != nil && !bytes.Equal(first, kept)) {
			t.Fatalf("%s, %v", kept, err)
		}
		first = kept
	}
	record(t, other, 20)
	refusedAs(t, w.Add([]byte(toldBy(other).Signed)), sandbox.CodeConflict)
	if got := witnessedOf(t, dir); len(got.Evidence) != maxContradictions+1 || !strings.HasSuffix(got.Evidence[0], EvidenceFork+"-01") {
		t.Errorf("%d: %v", len(got.Evidence), got.Evidence)
	}
	busy := 0
	for old := int64(44); old < 44+takenBurst+10; old++ {
		record(t, honest, 1)
		if err := w.Add(from(t, toldBy(honest), w.logs[0].last.Size)); err != nil {
			refusedAs(t, err, sandbox.CodeBusy)
			busy++
		}
	}
	if busy == 0 {
		t.Error("it takes as many as are told")
	}
	// Files that are full are left alone, and the oldest goes.
	l := w.logs[0]
	for i := range notesFiles + 2 {
		last := must(notesOf(l.dir))
		if err := os.Truncate(last[len(last)-1], notesFile); err != nil {
			t.Fatal(err)
		}
		c := l.last
		c.Size += int64(i) + 1
		if err := l.keep(c); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(must(notesOf(l.dir))); n != notesFiles {
		t.Errorf("%d files", n)
	}
	_, err := OpenWatcher(dir, []Key{key}, slog.New(slog.DiscardHandler))
	refusedAs(t, err, sandbox.CodeConflict) // one process at a time
}

// A log that is told to be another's witness sends proofs when it is asked for them, and says
// loudly that it was contradicted.
func TestWitnessIsGivenProofs(t *testing.T) {
	honest, other, key := copied(t, 5)
	w, _ := watcher(t, t.TempDir(), key.String())
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		first, _, _ := strings.Cut(string(body), "\n")
		asked = append(asked, first)
		err := w.Add(body)
		var size *SizeError
		switch {
		case errors.As(err, &size):
			answer.Header().Set("Content-Type", SizeType)
			answer.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(answer, "%d\n", size.Size)
		case err != nil:
			answer.WriteHeader(http.StatusConflict)
			_, _ = answer.Write(sandbox.MarshalErrorBody(err))
		}
	}))
	defer server.Close()
	keep := func(to Witness, l *Log) error { return to.Keep(context.Background(), toldBy(l)) }
	told, fork := NewWitness(server.URL), NewWitness(server.URL)
	for range 3 {
		record(t, honest, 2)
		if err := keep(told, honest); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(asked, "|"); got != "a.example.com|a.example.com|old 7|old 9" {
		t.Errorf("it was told %s", got)
	}
	record(t, other, 2)
	if err := keep(fork, other); !errors.Is(err, ErrContradicted) { // there are fewer
		t.Errorf("rolled back: %v", err)
	}
	record(t, other, 4)
	if err := keep(fork, other); !errors.Is(err, ErrContradicted) {
		t.Errorf("of one size: %v", err)
	}
	record(t, other, 1)
	if err := keep(fork, other); !errors.Is(err, ErrContradicted) {
		t.Errorf("grown: %v", err)
	}
	said := &lockedbuffer.Buffer{}
	tell := newTeller([]Witness{NewWitness(server.URL)}, slog.New(slog.NewTextHandler(said, nil)))
	tell.tell(toldBy(other))
	tell.end()
	if !strings.Contains(said.String(), "A WITNESS HAS SEEN ANOTHER HISTORY") {
		t.Errorf("it says %s", said)
	}
	for _, answer := range []string{"-1\n", "x", "99999999999999999999\n", ""} {
		odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", SizeType)
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, answer)
		}))
		if err := keep(NewWitness(odd.URL), honest); err == nil || errors.Is(err, ErrContradicted) {
			t.Errorf("%q: %v", answer, err)
		}
		odd.Close()
	}
}
