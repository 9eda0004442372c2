//go:build !lean

package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/audit"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// What a witness knows is listed, and evidence is an exit status of its own.
func TestWitnessedIsListed(t *testing.T) {
	state := t.TempDir()
	ask := func() (int, string) {
		t.Helper()
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		a := &app{Deps: Deps{Stdout: out}}
		if err := a.listWitnessed(&auditFlags{state: state}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return a.exit, string(text)
	}
	a := &app{}
	if err := a.listWitnessed(&auditFlags{state: state}); err == nil || !strings.Contains(sandbox.AsError(err).Hint, "audit.witness_for") {
		t.Errorf("no witness: %v", err)
	}
	l, err := audit.Open(audit.Options{Dir: t.TempDir(), Name: "other.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	key, err := audit.ParseKey(l.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	w, err := audit.OpenWatcher(filepath.Join(state, audit.WatchDir), []audit.Key{key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var heads []string
	for range 2 {
		if _, err := l.Record(t.Context(), records.Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditRun}}); err != nil {
			t.Fatal(err)
		}
		_, signed := l.Head()
		heads = append(heads, signed)
	}
	if exit, text := ask(); exit != 0 || !strings.Contains(text, "other.example.com  0 ") {
		t.Errorf("%d: %s", exit, text)
	}
	if err := w.Add([]byte(heads[1])); err != nil {
		t.Fatal(err)
	}
	if exit, text := ask(); exit != 0 || !strings.Contains(text, "other.example.com  2 ") {
		t.Errorf("%d: %s", exit, text)
	}
	if err := w.Add([]byte(heads[0])); err == nil {
		t.Fatal("it goes back")
	}
	if exit, text := ask(); exit != exitFound || !strings.Contains(text, "rolled_back-01") {
		t.Errorf("%d: %s", exit, text)
	}
}
