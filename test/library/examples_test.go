//go:build linux

package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

// TestExamples: the programs in examples/ do what they show.
func TestExamples(t *testing.T) {
	ledger.Check(t)
	dir := agenttest.Install(t, "pinfold/examples/library", "pinfold/examples/client", "pinfold/examples/agent", agenttest.Agent)
	if got := output(t, filepath.Join(dir, "library")); got != "killed cpu_time\n1\n2\n3\nsucceeded\n" {
		t.Errorf("library printed %q", got)
	}
	s, err := server.Start(t.Context(), server.Options{Program: server.Build(t), State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	defer s.Client.Close()
	if got := output(t, filepath.Join(dir, "client"), "PINFOLD_SERVER=unix:"+s.Socket); got != "42\nsucceeded exited\nhello from inside\n" {
		t.Errorf("client printed %q", got)
	}
	if got := output(t, filepath.Join(dir, "agent"), "PINFOLD_SERVER=unix:"+s.Socket); got != "exited: KeyError: 'visitor'\nat most 160\na chart of 158 bytes\n" {
		t.Errorf("agent printed %q", got)
	}
}

// TestExampleByGoRun: "go run" once named a directory of its own that is gone in the next
// moment; TestExamples does what the hint says.
func TestExampleByGoRun(t *testing.T) {
	for range 2 { // built, and then from the cache
		cmd := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", ".")
		cmd.Dir = "../../examples/library"
		out, err := cmd.CombinedOutput()
		want := "CGO_ENABLED=0 go build -o . pinfold/examples/library pinfold/cmd/pinfold-agent && ./library\n"
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s", err, out)
		}
	}
}

func output(t *testing.T, program string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	return string(out)
}
