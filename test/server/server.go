//go:build linux

// Package server starts the real pinfold server for tests and benchmarks: the
// program that users have, as a process of its own, reached over its socket.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pinfold/client"
)

// Build makes the program and its agent, with the build tags, and returns the
// program's path.
func Build(tb testing.TB, tags ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := BuildIn(dir, tags...); err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "pinfold")
}

// BuildIn makes the program and its agent in a directory.
func BuildIn(dir string, tags ...string) error {
	for name, pkg := range map[string]string{"pinfold": "pinfold/cmd/pinfold", "pinfold-agent": "pinfold/cmd/pinfold-agent"} {
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=" + strings.Join(tags, ","), "-o", filepath.Join(dir, name), pkg}
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
		}
	}
	return nil
}

// Options say how a server is started.
type Options struct {
	Program string   // the executable
	State   string   // its state directory, must exist
	Args    []string // after "serve --listen … --state …"
	Env     []string // added to this process's
	Config  string   // the content of its configuration file
}

// Server is a running server.
type Server struct {
	Client *client.Client
	PID    int
	Socket string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed

	mu  sync.Mutex
	log bytes.Buffer
}

// timeout bounds how long a server may take to start, and to end.
const timeout = 60 * time.Second

// Start starts a server and waits until it is ready. A server that ends before
// is an error. Whoever starts it ends it, with Stop or Kill.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	return s, nil
}

// Launch starts a server and does not wait.
func Launch(ctx context.Context, o Options) (*Server, error) {
	s := &Server{Socket: filepath.Join(o.State, "s"), done: make(chan struct{})}
	args := []string{"serve", "--listen", "unix:" + s.Socket, "--state", o.State}
	if o.Config != "" {
		file := filepath.Join(o.State, "config.yaml")
		if err := os.WriteFile(file, []byte(o.Config), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config", file)
	}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), o.Program, append(args, o.Args...)...) //nolint:gosec // our own program
	s.cmd.Env = append(os.Environ(), o.Env...)
	s.cmd.Stdout, s.cmd.Stderr = (*logWriter)(s), (*logWriter)(s)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a test's Ctrl-C is not the server's
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.PID = s.cmd.Process.Pid
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	var err error
	s.Client, err = client.New("unix:"+s.Socket, client.WithPatience(0))
	return s, err
}

// logWriter keeps what the server says.
type logWriter Server

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log.Len() < 1<<20 {
		w.log.Write(p)
	}
	return len(p), nil
}

// Log returns what the server has said so far.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Ready waits until the server takes work.
func (s *Server) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := s.Client.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("the server ended (%w):\n%s", s.err, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w\n%s", err, s.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Kill ends the server with SIGKILL and waits.
func (s *Server) Kill() error {
	_ = s.Client.Close()
	_ = s.cmd.Process.Kill() // it may be gone
	<-s.done
	return nil
}

// Stop ends the server with SIGTERM. One that fails or takes too long is an error.
func (s *Server) Stop() error {
	_ = s.Client.Close()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
		if s.err != nil {
			return fmt.Errorf("%w:\n%s", s.err, s.Log())
		}
		return nil
	case <-time.After(timeout):
		return errors.Join(fmt.Errorf("the server does not end:\n%s", s.Log()), s.Kill())
	}
}
