package guest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// pipePeer is newPeer over memory, for tests in which time is made up.
func pipePeer(t *testing.T) (*guest.Guest, *peer) {
	t.Helper()
	host, theirs := net.Pipe()
	p := &peer{t: t, conn: theirs, frames: wire.NewReader(theirs, wire.Host)}
	go func() {
		p.send(hello)
		p.await(wire.KindHello)
	}()
	g, err := guest.New(t.Context(), host, wire.Hello{UID: 1, GID: 1, Home: "/home/user"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Close()
		_ = theirs.Close()
	})
	synctest.Wait()
	return g, p
}

// swallow reads everything and answers nothing.
func (p *peer) swallow() { _, _ = io.Copy(io.Discard, p.conn) }

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// An agent that has stopped, with everything else inside or alone, does not
// hold its callers for ever: each call ends with the connection.
func TestSilentAgentsAreGivenUp(t *testing.T) {
	nothing := func(wire.WatchEvent) error { return nil }
	for name, call := range map[string]func(context.Context, *guest.Guest) error{
		"stat":   func(ctx context.Context, g *guest.Guest) error { _, err := g.Stat(ctx, "f"); return err },
		"mkdir":  func(ctx context.Context, g *guest.Guest) error { return g.Mkdir(ctx, "d", 0o755) },
		"remove": func(ctx context.Context, g *guest.Guest) error { return g.Remove(ctx, "d") },
		"move":   func(ctx context.Context, g *guest.Guest) error { return g.Move(ctx, "a", "b") },
		"list":   func(ctx context.Context, g *guest.Guest) error { _, err := g.List(ctx, ".", 1, 10); return err },
		"glob": func(ctx context.Context, g *guest.Guest) error {
			_, err := g.Glob(ctx, ".", []string{"*"}, 10)
			return err
		},
		"put": func(ctx context.Context, g *guest.Guest) error {
			_, err := g.Put(ctx, []wire.PutFile{{Path: "f", Content: []byte("x")}})
			return err
		},
		"read": func(ctx context.Context, g *guest.Guest) error {
			_, err := g.ReadFile(ctx, "f", 10, io.Discard)
			return err
		},
		"write": func(ctx context.Context, g *guest.Guest) error { return g.WriteFile(ctx, "f", 0o644, -1, endless{}) },
		"written": func(ctx context.Context, g *guest.Guest) error {
			return g.WriteFile(ctx, "f", 0o644, 1, strings.NewReader("x"))
		},
		"watch":    func(ctx context.Context, g *guest.Guest) error { return g.Watch(ctx, ".", true, nothing) },
		"kill all": func(ctx context.Context, g *guest.Guest) error { return g.KillAll(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, p := pipePeer(t)
				go p.swallow()
				begun := time.Now()
				err := call(t.Context(), g)
				known := sandbox.AsError(err)
				if !errors.Is(err, guest.ErrSilent) || known.Code != sandbox.CodeProtocol || known.Hint == "" {
					t.Errorf("%v", err)
				}
				if took := time.Since(begun); took != time.Minute {
					t.Errorf("it took %v", took)
				}
				if !errors.Is(g.Err(), guest.ErrSilent) {
					t.Errorf("the connection: %v", g.Err())
				}
			})
		})
	}
}

// leisurely is a reader and a writer that takes its time.
type leisurely struct{ times int }

func (s *leisurely) Read(b []byte) (int, error) {
	if s.times--; s.times < 0 {
		return 0, io.EOF
	}
	time.Sleep(10 * time.Minute)
	b[0] = 'x'
	return 1, nil
}

func (s *leisurely) Write(b []byte) (int, error) {
	time.Sleep(10 * time.Minute)
	return len(b), nil
}

// What takes long for the caller's sake, or goes on slowly, is no silence.
func TestSlowIsNotSilent(t *testing.T) {
	const later = 50 * time.Second
	t.Run("an upload that drips", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, p := pipePeer(t)
			go func() {
				p.await(wire.KindEOF)
				time.Sleep(later)
				p.send(message(wire.KindClose, 1, `{"size":3}`))
				p.swallow()
			}()
			if err := g.WriteFile(t.Context(), "f", 0o644, 3, &leisurely{times: 3}); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("a download to one who does not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, p := pipePeer(t)
			go func() {
				for range 3 {
					time.Sleep(later)
					p.send(data(1, 10))
				}
				time.Sleep(later)
				p.send(wire.AppendEOF(nil, 1, 1))
				p.send(message(wire.KindClose, 1, `{"size":30}`))
			}()
			go p.swallow()
			if n, err := g.ReadFile(t.Context(), "f", 100, &leisurely{}); err != nil || n != 30 {
				t.Error(n, err)
			}
		})
	})
	t.Run("a watch of which nothing is to be told, and a process that says nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, p := pipePeer(t)
			go func() {
				time.Sleep(later)
				p.send(watched(watchReady))
				p.send(message(wire.KindEvent, 2, started))
				p.swallow()
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- g.Watch(ctx, ".", true, func(wire.WatchEvent) error { return nil }) }()
			synctest.Wait()
			if _, err := g.Start(t.Context(), guest.Command{Args: []string{"x"}}, guest.Streams{}); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || g.Err() != nil {
				t.Error(err, g.Err())
			}
		})
	})
}
