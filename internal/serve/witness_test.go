package serve

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/audit"
	"pinfold/internal/config"
)

// A server is the witness of another's log, across restarts of both. When the other's state
// is put back to an older one, both servers say so, and the witness has the evidence.
func TestServerIsAnothersWitness(t *testing.T) {
	watched := configure(t)
	watched.Audit.Enabled, watched.Audit.Name = true, "a.example.com"
	ended := func(r *running) {
		t.Helper()
		r.signals <- syscall.SIGTERM
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
	}
	ended(start(t, watched, Options{}))
	log := filepath.Join(watched.State, audit.Dir)
	public, err := os.ReadFile(audit.KeyFile(log))
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(log)); err != nil {
		t.Fatal(err)
	}

	c := configure(t)
	c.Audit.WitnessFor = []config.WatchedLog{{Name: "a.example.com", Key: strings.TrimSpace(string(public))}}
	var witness *running
	witnessed := func() audit.Witnessed {
		t.Helper()
		all, err := audit.ReadWitnessed(filepath.Join(c.State, audit.WatchDir))
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0]
	}
	run := func(n int) *running {
		t.Helper()
		if witness == nil {
			witness = start(t, c, Options{})
		}
		watched.Audit.Witnesses = []string{witness.url + "/v1/witness/checkpoints"}
		r := start(t, watched, Options{})
		for range n {
			status, body := r.ask(http.MethodPost, "/v1/runs", `{"language":"sh","code":"x"}`)
			if result(t, status, body).Receipt == nil {
				t.Fatalf("no receipt: %s", body)
			}
		}
		return r
	}
	ended(run(3))
	first := witnessed()
	if first.Entries < 3 || len(first.Evidence) != 0 {
		t.Fatalf("%+v\n%s", first, witness.log)
	}
	ended(witness)
	witness = nil
	r := run(2)
	ended(r)
	if got := witnessed(); got.Entries < first.Entries+2 || len(got.Evidence) != 0 || strings.Contains(r.log.String(), "witness") {
		t.Fatalf("%+v\n%s", got, r.log)
	}
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(log, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	last := witnessed().Entries
	r = run(1) // fewer than were seen
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(r.log.String(), "ANOTHER HISTORY") && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	ended(r)
	ended(run(20)) // and more
	got := witnessed()
	if got.Entries != last || len(got.Evidence) < 2 || !strings.Contains(r.log.String(), "ANOTHER HISTORY") || !strings.Contains(witness.log.String(), "CONTRADICTS") {
		t.Errorf("%+v\n%s\n%s", got, r.log, witness.log)
	}
	key, err := audit.ParseKey(string(public))
	if err != nil {
		t.Fatal(err)
	}
	if report, err := audit.Verify(log, audit.Evidence{Key: key}); err != nil || report.Problem != nil {
		t.Errorf("the control: by itself it is well: %+v, %v", report.Problem, err)
	}
	if report, err := audit.Verify(log, audit.Evidence{Key: key, Checkpoints: []string{got.Dir}}); err != nil || report.Problem == nil {
		t.Errorf("the witness's files do not tell: %v", err)
	}
}
