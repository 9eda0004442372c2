//go:build linux

// Package e2e runs the real program from the outside, as a user would: the
// binaries are built, started with real input, and judged by their exit status,
// their output and what they leave on the host. As root every test also runs
// as an ordinary user.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
)

// programs are what the tests start.
var programs = []string{"pinfold/cmd/pinfold", agenttest.Agent, agenttest.Warden}

// again runs a test as an ordinary user, too.
func again(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, strings.Split(t.Name(), "/")[0], programs, nil) })
	}
}

// pinfold returns the program's path; the agent lies beside it.
func pinfold(t *testing.T) string {
	t.Helper()
	return filepath.Join(agenttest.Install(t, programs...), "pinfold")
}

// output is what a command line did.
type output struct {
	stdout, stderr string
	code           int
}

// start runs pinfold with the arguments, in an empty directory.
func start(t *testing.T, bin, stdin string, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...) //nolint:gosec // the program under test
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// run runs a program and returns its result.
func run(t *testing.T, bin, language, code string, args ...string) (sandbox.Result, output) {
	t.Helper()
	o := start(t, bin, code, append([]string{"run", "--json", "--language", language, "-"}, args...)...)
	var r sandbox.Result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.ID == "" {
		t.Fatalf("no result: %v: exit status %d, stdout %.500q, stderr %.500q", err, o.code, o.stdout, o.stderr)
	}
	return r, o
}
