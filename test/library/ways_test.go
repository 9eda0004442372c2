//go:build linux

// Package library uses Pinfold as a Go program does: as a library in its own
// process, and through the client of a server; with real sandboxes, and the same
// tests for both.
package library

import (
	"context"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pinfold"
	"pinfold/client"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

// box is what a sandbox can do on either way.
type box interface { //nolint:interfacebloat // the whole of it must be the same
	ID() string
	Info(ctx context.Context) (sandbox.Info, error)
	Extend(ctx context.Context, ttlMS int64) (sandbox.Info, error)
	Destroy(ctx context.Context) (sandbox.Info, error)
	Snapshot(ctx context.Context, t sandbox.TakeSnapshot) (sandbox.Snapshot, error)
	Exec(ctx context.Context, c sandbox.Command, o client.ExecOptions) (sandbox.Process, error)
	Processes(ctx context.Context) ([]sandbox.Process, error)
	Stat(ctx context.Context, path string) (sandbox.FileInfo, error)
	List(ctx context.Context, path string, depth, limit int) (sandbox.Listing[sandbox.FileInfo], error)
	ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (int64, error)
	WriteFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error
	Mkdir(ctx context.Context, path string, mode uint32) error
	Move(ctx context.Context, from, to string) error
	Remove(ctx context.Context, path string) error
	Watch(ctx context.Context, path string, recursive bool, f func(sandbox.FileEvent) error) error
	Changes(ctx context.Context, limit int) (sandbox.Listing[sandbox.Change], error)
	Dial(ctx context.Context, port int) (net.Conn, error)
	Upload(ctx context.Context, path, format string, r io.Reader) (client.Archived, error)
	Download(ctx context.Context, path, format string, w io.Writer) (int, error)
}

// process is the same for processes.
type process interface { //nolint:interfacebloat // as above
	ID() string
	Info(ctx context.Context) (sandbox.Process, error)
	Wait(ctx context.Context) (sandbox.Process, error)
	Output(ctx context.Context, o client.OutputOptions) (sandbox.Process, error)
	WriteStdin(ctx context.Context, r io.Reader) (int64, error)
	CloseStdin(ctx context.Context) error
	Signal(ctx context.Context, name string) error
	Resize(ctx context.Context, cols, rows int) error
}

// pinfoldAPI is what there is besides.
type pinfoldAPI interface { //nolint:interfacebloat // as above
	Run(ctx context.Context, s sandbox.Spec, o client.RunOptions) (*sandbox.Result, error)
	GetRun(ctx context.Context, id string) (client.RunRecord, error)
	StartRun(ctx context.Context, s sandbox.Spec, o client.StartOptions) (client.RunRecord, error)
	CancelRun(ctx context.Context, id string) (client.RunRecord, error)
	WaitRun(ctx context.Context, id string) (client.RunRecord, error)
	WatchRun(ctx context.Context, id string, o client.WatchOptions) (*sandbox.Result, error)
	Runs(ctx context.Context, f client.Filter) iter.Seq2[client.RunRecord, error]
	Sandboxes(ctx context.Context, f client.Filter) iter.Seq2[sandbox.Info, error]
	Languages(ctx context.Context) ([]client.Language, error)
	Templates(ctx context.Context) ([]string, error)
	Pools(ctx context.Context) ([]sandbox.PoolInfo, error)
	SetPool(ctx context.Context, p sandbox.PoolSpec) (sandbox.PoolInfo, error)
	RemovePool(ctx context.Context, name string) error
	Usage(ctx context.Context, from, to time.Time) ([]client.Day, error)
	Snapshots(ctx context.Context) ([]sandbox.Snapshot, error)
	Snapshot(ctx context.Context, id string) (sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, id string) error
}

// way is one of the two.
type way struct {
	pinfoldAPI

	create func(t *testing.T, c sandbox.Create) box
	fork   func(t *testing.T, b box, f sandbox.ForkSandbox) []box
	start  func(t *testing.T, b box, c sandbox.Command) process
	port   func(t *testing.T, b box, port int) http.RoundTripper
}

// both runs a test in this process and through a server.
func both(t *testing.T, test func(t *testing.T, w way)) {
	t.Run("library", func(t *testing.T) {
		ledger.Check(t)
		test(t, inProcess(t))
	})
	if os.Getenv(agenttest.DirEnv) != "" { // as an ordinary user: a server is built where Go is
		return
	}
	t.Run("client", func(t *testing.T) {
		ledger.Check(t)
		test(t, throughServer(t))
	})
}

// agentFile writes the agent where only this user can.
func agentFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pinfold-agent")
	if err := os.WriteFile(name, agenttest.Bytes(t), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return name
}

func inProcess(t *testing.T) way {
	t.Helper()
	local, err := pinfold.Open(t.Context(), pinfold.Options{Agent: agentFile(t), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	return way{
		pinfoldAPI: local,
		create: func(t *testing.T, c sandbox.Create) box {
			return must(local.Create(t.Context(), c))(t)
		},
		fork: func(t *testing.T, b box, f sandbox.ForkSandbox) (all []box) {
			for _, fork := range must(must(local.Sandbox(b.ID()))(t).Fork(t.Context(), f))(t) {
				all = append(all, fork)
			}
			return all
		},
		start: func(t *testing.T, b box, c sandbox.Command) process {
			return must(must(local.Sandbox(b.ID()))(t).Start(t.Context(), c))(t)
		},
		port: func(t *testing.T, b box, port int) http.RoundTripper {
			inside := must(local.Sandbox(b.ID()))(t)
			return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return inside.Dial(ctx, port) }}
		},
	}
}

func throughServer(t *testing.T) way {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Program: server.Build(t), State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	c := s.Client
	t.Cleanup(func() {
		_ = c.Close()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return way{
		pinfoldAPI: c,
		create:     func(t *testing.T, create sandbox.Create) box { return must(c.Create(t.Context(), create))(t) },
		fork: func(t *testing.T, b box, f sandbox.ForkSandbox) (all []box) {
			for _, fork := range must(c.Sandbox(b.ID()).Fork(t.Context(), f))(t) {
				all = append(all, fork)
			}
			return all
		},
		start: func(t *testing.T, b box, command sandbox.Command) process {
			return must(c.Sandbox(b.ID()).Start(t.Context(), command))(t)
		},
		port: func(_ *testing.T, b box, port int) http.RoundTripper { return c.Sandbox(b.ID()).Transport(port) },
	}
}

// must fails the test on an error.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%v (%s)", err, sandbox.AsError(err).Code)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (%s)", err, sandbox.AsError(err).Code)
	}
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return sandbox.AsError(err).Code
}
