// Package agenttest gives tests the agent's executable, and other programs of
// this module, built from the source beside them. A test binary lies in a
// directory of its own, so agentbin.Open finds nothing there.
package agenttest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Agent is the package of the agent.
const Agent = "pinfold/cmd/pinfold-agent"

// Warden is the package of a virtual machine's first process.
const Warden = "pinfold/cmd/pinfold-warden"

// DirEnv names a directory with programs that are built already, for test
// binaries that are started again where no Go is.
const DirEnv = "PINFOLD_TEST_PROGRAMS"

// Bytes returns the agent's executable, stripped as in a release. It is built
// once in the life of a test binary. A build that fails ends the test.
func Bytes(tb testing.TB) []byte {
	tb.Helper()
	return Program(tb, Agent)
}

// Program returns the executable of a package, static and stripped, built once
// like the agent. A build that fails ends the test.
func Program(tb testing.TB, pkg string) []byte {
	tb.Helper()
	once, _ := built.LoadOrStore(pkg, sync.OnceValues(func() ([]byte, error) { return build(pkg) }))
	program, err := once.(func() ([]byte, error))() //nolint:errcheck,forcetypeassert // stored above
	if err != nil {
		tb.Fatalf("building %s: %v", pkg, err)
	}
	return program
}

// Install puts the executables of packages into a directory, each under the name of
// its package, and returns the directory: that of DirEnv where there is one.
func Install(tb testing.TB, pkgs ...string) (dir string) {
	tb.Helper()
	if dir := os.Getenv(DirEnv); dir != "" {
		return dir
	}
	dir = tb.TempDir()
	for _, pkg := range pkgs {
		if err := os.WriteFile(filepath.Join(dir, path.Base(pkg)), Program(tb, pkg), 0o755); err != nil { //nolint:gosec // a program
			tb.Fatal(err)
		}
	}
	return dir
}

// Overlay writes a file for go build's -overlay and returns its name: files of this
// module, by their paths from its root, are taken from elsewhere. So a test builds what
// make builds, and leaves the checkout as it is.
func Overlay(tb testing.TB, replace map[string]string) string {
	tb.Helper()
	root, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		tb.Fatal(err)
	}
	absolute := map[string]string{}
	for file, by := range replace {
		absolute[filepath.Join(strings.TrimSpace(string(root)), file)] = by
	}
	overlay, err := json.Marshal(map[string]any{"Replace": absolute})
	if err != nil {
		tb.Fatal(err)
	}
	name := filepath.Join(tb.TempDir(), "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

var built sync.Map // package to its sync.OnceValues

func build(pkg string) ([]byte, error) {
	if dir := os.Getenv(DirEnv); dir != "" {
		return os.ReadFile(filepath.Join(dir, path.Base(pkg)))
	}
	dir, err := os.MkdirTemp("", "pinfold-agenttest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, path.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}
