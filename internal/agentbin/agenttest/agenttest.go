// Package agenttest gives tests the agent's executable, built from the source
// beside them. A test binary lies in a directory of its own, so agentbin.Open
// finds nothing there.
package agenttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Bytes returns the agent's executable, stripped as in a release. It is built
// once in the life of a test binary. A build that fails ends the test.
func Bytes(tb testing.TB) []byte {
	tb.Helper()
	agent, err := build()
	if err != nil {
		tb.Fatalf("building the agent: %v", err)
	}
	return agent
}

var build = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "pinfold-agenttest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "pinfold-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "pinfold/cmd/pinfold-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
})
