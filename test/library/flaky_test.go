//go:build linux

package library

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
	"pinfold/test/server"
)

// TestBrokenConnectionsLoseAndRepeatNothing goes through a line on which every
// connection is cut after a while.
func TestBrokenConnectionsLoseAndRepeatNothing(t *testing.T) {
	s, err := server.Start(t.Context(), server.Options{Program: server.Build(t), State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ok(t, s.Stop()) })
	t.Cleanup(func() { _ = s.Client.Close() })
	line := &line{t: t, socket: s.Socket}
	c := must(client.New(line.listen()))(t)
	t.Cleanup(func() { _ = c.Close() })

	const size = 4 << 20
	b := must(s.Client.Create(t.Context(), sandbox.Create{}))(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	ok(t, b.WriteFile(t.Context(), "big", 0, size, bytes.NewReader(content)))
	through := c.Sandbox(b.ID())

	t.Run("file", func(t *testing.T) {
		line.cutAfter(t, 300_000)
		var out bytes.Buffer
		if n := must(through.ReadFile(t.Context(), "big", 0, -1, &out))(t); n != size || !bytes.Equal(out.Bytes(), content) {
			t.Fatalf("%d bytes", n)
		}
	})
	t.Run("output", func(t *testing.T) {
		line.cutAfter(t, 300_000)
		var out, warn bytes.Buffer
		command := sandbox.Command{Shell: "cat big; echo done >&2; exit 3", OutputBytes: 2 * size}
		p := must(through.Exec(t.Context(), command, client.ExecOptions{Stdout: &out, Stderr: &warn}))(t)
		if *p.ExitCode != 3 || !bytes.Equal(out.Bytes(), content) || warn.String() != "done\n" {
			t.Fatalf("%+v, %d bytes, %q", p, out.Len(), warn.String())
		}
	})
	t.Run("wait", func(t *testing.T) {
		line.cutAfter(t, 100)
		p := must(b.Start(t.Context(), sandbox.Command{Shell: "sleep 0.5; exit 4"}))(t)
		line.cutOnce(t, 10)
		if info := must(through.Process(p.ID()).Wait(t.Context()))(t); *info.ExitCode != 4 {
			t.Fatalf("%+v", info)
		}
	})
	t.Run("run", func(t *testing.T) {
		line.cutOnce(t, 1000)
		var out bytes.Buffer
		code := "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; sleep 0.5; echo end"
		r := must(c.Run(t.Context(), sandbox.Spec{Language: "sh", Code: code}, client.RunOptions{Stdout: &out, IdempotencyKey: "k"}))(t)
		if out.String() != r.Stdout || !strings.HasSuffix(r.Stdout, "line 199\nend\n") {
			t.Fatalf("%q is not %q", out.String(), r.Stdout)
		}
		if line.cuts.Load() != 1 {
			t.Fatal("nothing was cut")
		}
		n := 0
		for _, err := range s.Client.Runs(t.Context(), client.Filter{}) {
			ok(t, err)
			n++
		}
		if n != 1 {
			t.Fatalf("it ran %d times", n)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		line.cutAfter(t, 5000)
		p := must(b.Start(t.Context(), sandbox.Command{
			Shell: "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done", Terminal: &sandbox.Terminal{Cols: 80, Rows: 24},
		}))(t)
		term := must(through.Process(p.ID()).Terminal(t.Context(), 0))(t)
		defer term.Close()
		out := must(io.ReadAll(term))(t)
		want := ""
		for i := range 2000 {
			want += fmt.Sprintf("%d\r\n", i)
		}
		if string(out) != want {
			t.Fatalf("%d bytes instead of %d", len(out), len(want))
		}
		if end, ended := term.Process(); !ended || *end.ExitCode != 0 {
			t.Fatalf("%+v", end)
		}
	})
}

// line carries connections to a server and cuts them.
type line struct {
	t      *testing.T
	socket string
	after  atomic.Int64 // bytes of answers, 0: never
	once   atomic.Bool
	cuts   atomic.Int64
}

func (l *line) cutAfter(t *testing.T, n int64) { l.set(t, n, false) }
func (l *line) cutOnce(t *testing.T, n int64)  { l.set(t, n, true) }

// set takes effect for new connections, and at the end of the test makes sure
// that there were cuts.
func (l *line) set(t *testing.T, n int64, once bool) {
	l.cuts.Store(0)
	l.once.Store(once)
	l.after.Store(n)
	t.Cleanup(func() {
		if l.after.Store(0); l.cuts.Load() == 0 && !once {
			t.Error("nothing was cut")
		}
	})
}

func (l *line) listen() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn)
		}
	}()
	return "http://" + listener.Addr().String()
}

func (l *line) carry(conn net.Conn) {
	defer conn.Close()
	up, err := (&net.Dialer{}).DialContext(context.Background(), "unix", l.socket)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, conn)
		_ = up.Close()
	}()
	buf := make([]byte, 1024)
	for sent := int64(0); ; {
		n, err := up.Read(buf)
		if limit := l.after.Load(); limit > 0 && sent+int64(n) > limit {
			_, _ = conn.Write(buf[:max(0, limit-sent)])
			l.cuts.Add(1)
			if l.once.Load() {
				l.after.Store(0)
			}
			return
		}
		if _, wErr := conn.Write(buf[:n]); err != nil || wErr != nil {
			return
		}
		sent += int64(n)
	}
}
