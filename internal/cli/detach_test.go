package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// What is piped into a run that nobody waits for goes with it, as for others. A pipe that stays
// open and says nothing, as under cron and CI, is no stdin, and is waited for only where somebody
// says that it is one.
func TestDetachedRunsHaveOurStdin(t *testing.T) {
	var asked sandbox.Spec
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = sandbox.Spec{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"id": "run_aaaaaaaaaaaaaaaaaaaaaaaaaa", "state": "queued"}`)
	}))
	defer server.Close()
	idle, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	defer open.Close()
	for name, c := range map[string]struct {
		stdin io.Reader
		want  string
		says  bool
	}{
		"none": {nil, "", false}, "text": {strings.NewReader("abc\n"), "abc\n", false},
		"ended": {strings.NewReader(""), "", false}, "idle": {idle, "", true},
	} {
		out, warn := outFile(t), outFile(t)
		a := &app{at: serverFlags{server: server.URL}, Deps: Deps{Stdout: out, Stderr: warn}}
		req := runs.Request{Spec: sandbox.Spec{Language: "shell", Code: "cat"}, Streams: execution.Streams{Stdin: c.stdin}}
		if err := a.detach(t.Context(), &runFlags{}, req); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		printed, said := content(t, out), content(t, warn)
		if asked.Stdin != c.want || !strings.HasPrefix(printed, "run_") || strings.Contains(said, "--stdin -") != c.says {
			t.Errorf("%s: %q %q %q", name, asked.Stdin, printed, said)
		}
	}
}

func outFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
