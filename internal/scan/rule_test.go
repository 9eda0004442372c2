package scan

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"pinfold/internal/language"
)

// serve has a started Python read one source after the other, as a warm one would.
const serve = `
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("reader", sys.argv[1])
reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)
for name in sys.stdin:
    with open(name.strip(), "rb") as f:
        print(json.dumps(reader.scan(f.read())), flush=True)
`

// scanner reads Python with this machine's, on texts of these tests only.
func scanner(t testing.TB) Scanner {
	t.Helper()
	dir := t.TempDir()
	program, name := filepath.Join(dir, "scan.py"), filepath.Join(dir, "source.py")
	if err := os.WriteFile(program, pythonProgram, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-I", "-W", "ignore", "-c", serve, program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("these tests read Python with python3: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	answers := bufio.NewReader(out)
	return Scanner{Python: func(_ context.Context, _, source []byte) ([]byte, error) {
		if err := os.WriteFile(name, source, 0o600); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(in, name+"\n"); err != nil {
			return nil, err
		}
		return answers.ReadBytes('\n')
	}}
}

func scanned(t testing.TB, s Scanner, lang, source string) *Report {
	t.Helper()
	r, err := s.Scan(t.Context(), Source{Language: lang, Text: []byte(source)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rulesOf(r *Report) (ids []string) {
	for _, f := range r.Findings {
		ids = append(ids, f.Rule)
	}
	return ids
}

// Every rule finds its example, and nothing in the harmless twin.
func TestEveryRuleHoldsItsExamples(t *testing.T) {
	s := scanner(t)
	seen := map[string]bool{}
	for _, rule := range Rules() {
		if seen[rule.ID] {
			t.Errorf("two rules are called %s", rule.ID)
		}
		seen[rule.ID] = true
		for _, l := range append([]string{rule.Sample}, rule.Languages...) {
			if _, err := language.Find(l); err != nil {
				t.Errorf("%s: %v", rule.ID, err)
			}
		}
		if Rank(rule.Severity) < 0 || rule.Title == "" || rule.Sees == "" || rule.Why == "" || rule.Class == "" {
			t.Errorf("%s does not say everything", rule.ID)
		}
		r := scanned(t, s, rule.Sample, rule.Example)
		if !slices.Contains(rulesOf(r), rule.ID) || r.Unread != "" {
			t.Errorf("%s is not found in its example; found: %q %s", rule.ID, rulesOf(r), r.Unread)
		}
		for _, f := range r.Findings {
			if f.Line < 1 || f.Column < 1 || f.Text == "" {
				t.Errorf("%s: a finding without its place: %+v", rule.ID, f)
			}
		}
		if r := scanned(t, s, rule.Sample, rule.Harmless); slices.Contains(rulesOf(r), rule.ID) || r.Unread != "" {
			t.Errorf("%s is found in its harmless twin %s", rule.ID, r.Unread)
		}
	}
}
