package api

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"pinfold/internal/audit"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// withWatcher makes a server a witness of a log, which is returned.
func withWatcher(t *testing.T, s *settings) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: t.TempDir(), Name: "other.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if _, err := l.Record(t.Context(), records.Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditRun}}); err != nil {
		t.Fatal(err)
	}
	key, err := audit.ParseKey(l.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	w, err := audit.OpenWatcher(t.TempDir(), []audit.Key{key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	s.api.Watcher = w
	return l
}

func witnessing(body string) request {
	return request{method: http.MethodPost, path: "/v1/witness/checkpoints", body: body, header: map[string]string{"Content-Type": "text/plain"}}
}

func useWitness(w *world, l *audit.Log) {
	w.t.Helper()
	_, signed := l.Head()
	w.must(204, witnessing(signed))
}

// The route for witnesses needs no key, takes what the log has signed and nothing else, and
// says from where a proof has to be in the words of tlog-witness.
func TestWitnessRoute(t *testing.T) {
	var l *audit.Log
	w := newWorld(t, func(s *settings) { l = withWatcher(t, s) })
	useWitness(w, l)
	useWitness(w, l)
	if _, err := l.Record(t.Context(), records.Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditRun}}); err != nil {
		t.Fatal(err)
	}
	_, signed := l.Head()
	if a := w.must(409, witnessing(signed)); a.header.Get("Content-Type") != audit.SizeType || a.body != "1\n" {
		t.Errorf("%q, %v", a.body, a.header)
	}
	if a := w.must(422, witnessing("old 1\n\n"+signed)); !strings.Contains(a.body, `"conflict"`) {
		t.Errorf("%s", a.body)
	}
	w.must(400, witnessing("old 3\n\n"+signed))
	w.must(403, witnessing(strings.Replace(signed, "\n2\n", "\n3\n", 1)))
	w.must(404, witnessing(strings.ReplaceAll(signed, "other.example.com", "another.example.com")))
	w.must(413, witnessing(strings.Repeat("x", audit.MaxTold+1)))
	endless := witnessing("")
	endless.body, endless.reader = nil, strings.NewReader(strings.Repeat("x", 10*audit.MaxTold)) // of no length that is said
	w.must(413, endless)
	none := newWorld(t, func(*settings) {})
	none.must(404, witnessing(signed))
}
